"""Recent activity of a job: differences between counts that only grow.

recent = Recent()
recent.look(time.monotonic(), workers, global_min)     # each second
recent.rates, recent.percentiles("latency")
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

from lowtide.histogram import Histogram
from lowtide.status.gauges import CallerGauges, LateGauges, LoopLooks, StepLooks, WorkerState

RATE_WINDOW_S = 5.0
LATENCY_WINDOW_S = 10.0
FEWEST_LOOKS = 4
"""Fewer looks at a loop say nothing of it."""
COMMIT = "commit"
LATENCY = "latency"
TURN = "turn"
"""The name of what is no hop: a turn of a host's loop."""

Counts = dict[int, int]
"""A histogram's bucket to records."""


class Totals(Struct, frozen=True, kw_only=True):
    """Counts since the life began: `records_in` from the sources, `delivered` to sinks, dead letters apart.

    Attributes:
        late: What was late, by window step or side of a join.
    """

    records_in: int = 0
    delivered: int = 0
    dead_letters: int = 0
    repairs: int = 0
    late: dict[str, LateGauges] = {}


class Rates(Struct, frozen=True, kw_only=True):
    """Records per second; None before the second look."""

    records_in: float | None = None
    delivered: float | None = None


class Percentiles(Struct, frozen=True, kw_only=True):
    """Of a duration in ms, right within 1/8; None where nothing was counted."""

    p50: float | None = None
    p99: float | None = None


Process = tuple[str, int]
"""The executor and the id of a process with workers."""


@dataclass(frozen=True, slots=True)
class BusyStep:
    """A step that takes much of a process's time.

    Attributes:
        step: Its name.
        share: Of the process's time over the last seconds, 0 to 1.
        process: The process.
        worker: A worker there that runs it.
        function: Its function, with file and line; empty if it is Lowtide's own code.
    """

    step: str
    share: float
    process: Process
    worker: str
    function: str


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    totals: Totals
    histograms: dict[str, Counts]
    callers: dict[str, CallerGauges]
    deliveries: dict[str, Counts]
    levels: dict[int, tuple[int, int]]
    loops: dict[Process, LoopLooks]


class Recent:
    """Keeps the looks of the last seconds.

    Args:
        rate_window_s: Over how long rates are taken.
        latency_window_s: Over how long percentiles are taken; the longer of the two is kept.
    """

    def __init__(self, rate_window_s: float = RATE_WINDOW_S, latency_window_s: float = LATENCY_WINDOW_S) -> None:
        self._rate_window_s = rate_window_s
        self._latency_window_s = latency_window_s
        self._looks: deque[_Look] = deque()
        self._global_min: int | None = None
        self._moved_s: float | None = None
        self._grown: dict[tuple[str, object], tuple[int, float | None]] = {}
        """By what is counted, its count and when that has grown last; None if it has not since the first look."""
        self.refused: dict[str, int] = {}
        """Rows that tables have refused, by sink, as of the last look."""

    def look(self, at_s: float, workers: Iterable[WorkerState], global_min: int | None = None) -> None:
        """Take what all workers have counted since the life began.

        Args:
            at_s: A monotonic clock's time.
            workers: All of the life.
            global_min: The tick at which min time stands, if that is known.
        """
        workers = list(workers)
        counts = _histograms(workers), _callers(workers), _deliveries(workers), passed_of(workers), _loops(workers)
        look = _Look(at_s, totals_of(workers), *counts)
        self._count(at_s, workers)
        if self._looks and look.totals.records_in < self._looks[-1].totals.records_in:
            self._looks.clear()  # Another life: earlier counts are not part of it.
        self._looks.append(look)
        kept_s = max(self._rate_window_s, self._latency_window_s)
        while len(self._looks) > 2 and self._looks[1].at_s <= at_s - kept_s:
            self._looks.popleft()
        if global_min is not None and (self._global_min is None or global_min > self._global_min):
            self._global_min, self._moved_s = global_min, at_s

    def _count(self, at_s: float, workers: Iterable[WorkerState]) -> None:
        """Note when what is counted by name has grown: offsets of fronts, dead letters, refused rows."""
        counts: Counter[tuple[str, object]] = Counter()
        self.refused = {}
        for gauges in [each.gauges for each in workers if each.gauges is not None]:
            if gauges.front is not None:
                counts["front", gauges.front.front] = gauges.front.next_offset
            for step, letters in (gauges.letters or {}).items():
                counts["letters", step] += letters.records
            for sink, rows in (gauges.refused or {}).items():
                counts["refused", sink] += rows
                self.refused[sink] = self.refused.get(sink, 0) + rows
        for what, count in counts.items():
            # The first dead letter is news; a front is first seen where it is, whenever it came there.
            before, grown_s = self._grown.get(what, (count if what[0] == "front" else 0, None))
            first_s = at_s if what not in self._grown and what[0] == "front" else grown_s
            self._grown[what] = count, at_s if count > before else first_s

    def since_s(self, what: str, name: object) -> float | None:
        """Return how long ago a count has grown last, or has first been seen; None if it is not known.

        Args:
            what: "front" for the next offset of a front, by its number; "letters" for the dead letters of a step, by
                its name; "refused" for refused rows, by sink.
            name: Its name or number.
        """
        _, grown_s = self._grown.get((what, name), (0, None))
        return None if grown_s is None or not self._looks else self._looks[-1].at_s - grown_s

    def busy_steps(self, least: float = 0.0) -> list[BusyStep]:
        """Return the steps that have taken so large a share of a process's time lately, the largest first."""
        before = self._before(self._latency_window_s)
        if before is None:
            return []
        found = []
        for process, loop in self._looks[-1].loops.items():
            old = before.loops.get(process, LoopLooks())
            looks = loop.looks - old.looks
            for step, seen in loop.steps.items():
                share = (seen.looks - old.steps.get(step, StepLooks()).looks) / looks if looks > 0 else 0.0
                if looks >= FEWEST_LOOKS and share > 0 and share >= least:
                    found.append(BusyStep(step, share, process, seen.worker, seen.function))
        return sorted(found, key=lambda each: -each.share)

    @property
    def totals(self) -> Totals:
        """Counts since the life began, as of the last look."""
        return self._looks[-1].totals if self._looks else Totals()

    @property
    def histograms(self) -> dict[str, Counts]:
        """All durations since the life began by name: "latency", "turn" of the hosts' loops, and the hops."""
        return self._looks[-1].histograms if self._looks else {}

    @property
    def callers(self) -> dict[str, CallerGauges]:
        """Return the answers of services since the life began, by step."""
        return self._looks[-1].callers if self._looks else {}

    @property
    def deliveries(self) -> dict[str, Counts]:
        """The durations of deliveries since the life began, by store."""
        return self._looks[-1].deliveries if self._looks else {}

    @property
    def hops(self) -> list[str]:
        """The names of the hops that were counted, in the order in which a record meets them."""
        return sorted((name for name in self.histograms if name not in (LATENCY, TURN)), key=_position)

    @property
    def held_s(self) -> float | None:
        """For how long min time has stood where it is; None if it is not known."""
        return None if self._moved_s is None or not self._looks else self._looks[-1].at_s - self._moved_s

    @property
    def rates(self) -> Rates:
        """Records per second over the last seconds."""
        before = self._before(self._rate_window_s)
        if before is None:
            return Rates()
        now, passed_s = self._looks[-1], self._looks[-1].at_s - before.at_s
        return Rates(
            records_in=max(0, now.totals.records_in - before.totals.records_in) / passed_s,
            delivered=max(0, now.totals.delivered - before.totals.delivered) / passed_s,
        )

    def passed_per_s(self, level: int) -> tuple[float, float] | None:
        """Return the records per second into a level and out of it; None before the second look."""
        before = self._before(self._rate_window_s)
        if before is None:
            return None
        last = self._looks[-1]
        pairs = zip(last.levels.get(level, (0, 0)), before.levels.get(level, (0, 0)), strict=True)
        come, gone = (max(0, now - old) / (last.at_s - before.at_s) for now, old in pairs)
        return come, gone

    def percentiles(self, name: str) -> Percentiles:
        """Return the percentiles of a duration over the last seconds."""
        before = self._before(self._latency_window_s)
        return _percentiles(self.histograms.get(name, {}), before.histograms.get(name, {}) if before else {})

    def call_percentiles(self, step: str) -> Percentiles:
        """Return the percentiles of a call over the last seconds, from its question to its answer."""
        before = self._before(self._latency_window_s)
        return _percentiles(_seconds(self._looks[-1], step), _seconds(before, step)) if self._looks else Percentiles()

    def answers_per_s(self, step: str) -> float | None:
        """Return the answers per second to a call over the last seconds; None before the second look."""
        before = self._before(self._rate_window_s)
        if before is None:
            return None
        last = self._looks[-1]
        answers = sum(_seconds(last, step).values()) - sum(_seconds(before, step).values())
        return max(0, answers) / (last.at_s - before.at_s)

    def _before(self, window_s: float) -> _Look | None:
        """Return the newest look of at least this age, else the oldest; None if there is only the last one."""
        if len(self._looks) < 2:
            return None
        last = self._looks[-1]
        old = [look for look in self._looks if look.at_s <= last.at_s - window_s]
        before = old[-1] if old else self._looks[0]
        return before if before.at_s < last.at_s else None


def totals_of(workers: Iterable[WorkerState]) -> Totals:
    """Sum up what workers have counted."""
    known = [(worker.level, worker.gauges) for worker in workers if worker.gauges is not None]
    return Totals(
        records_in=sum(gauges.records_in for level, gauges in known if level == 0),
        delivered=sum(gauges.delivered for _, gauges in known),
        dead_letters=sum(gauges.dead_letters for _, gauges in known),
        repairs=sum(gauges.repairs for _, gauges in known),
        late=_late([gauges.late for _, gauges in known if gauges.late is not None]),
    )


def passed_of(workers: Iterable[WorkerState]) -> dict[int, tuple[int, int]]:
    """Sum up the records in and out of each level."""
    found: dict[int, tuple[int, int]] = {}
    for worker in workers:
        if worker.gauges is not None:
            come, gone = found.get(worker.level, (0, 0))
            found[worker.level] = come + worker.gauges.records_in, gone + worker.gauges.records_out
    return found


def _percentiles(now: Counts, old: Counts) -> Percentiles:
    grown = Histogram({bucket: more for bucket, count in now.items() if (more := count - old.get(bucket, 0)) > 0})
    if not grown.counts:
        return Percentiles()
    return Percentiles(p50=grown.percentile_ms(50), p99=grown.percentile_ms(99))


def _seconds(look: _Look | None, step: str) -> Counts:
    caller = None if look is None else look.callers.get(step)
    return {} if caller is None else caller.seconds


def _callers(workers: Iterable[WorkerState]) -> dict[str, CallerGauges]:
    """Sum up what hosts have seen of services; each host counts with one of its workers."""
    found: dict[str, CallerGauges] = {}
    for worker in workers:
        for step, seen in ((worker.gauges and worker.gauges.callers) or {}).items():
            found[step] = found[step].and_(seen) if step in found else seen
    return found


def _loops(workers: Iterable[WorkerState]) -> dict[Process, LoopLooks]:
    """Return the looks at each process's loop."""
    return {
        (worker.executor, worker.pid): worker.gauges.looks
        for worker in workers
        if worker.gauges is not None and worker.gauges.looks is not None
    }


def _late(counted: Iterable[dict[str, LateGauges]]) -> dict[str, LateGauges]:
    """Sum up the late records of each step over all workers."""
    found: dict[str, LateGauges] = {}
    for steps in counted:
        for step, seen in steps.items():
            found[step] = found[step].and_(seen) if step in found else seen
    return found


def _histograms(workers: Iterable[WorkerState]) -> dict[str, Counts]:
    sums: dict[str, Histogram] = {}
    for worker in workers:
        gauges = worker.gauges
        if gauges is None:
            continue
        named = {f"{hop} {worker.level}" if hop == "python" else hop: of for hop, of in gauges.hops.items()}
        if gauges.latency:
            named[LATENCY] = gauges.latency
        if gauges.turns:
            named[TURN] = gauges.turns
        for name, counts in named.items():
            sums.setdefault(name, Histogram()).merge(counts)
        for counts in (gauges.deliveries or {}).values():
            sums.setdefault(COMMIT, Histogram()).merge(counts)
    return {name: histogram.counts for name, histogram in sums.items()}


def _deliveries(workers: Iterable[WorkerState]) -> dict[str, Counts]:
    """Sum up how long deliveries took; each process counts with one of its workers."""
    sums: dict[str, Histogram] = {}
    for worker in workers:
        for store, counts in ((worker.gauges and worker.gauges.deliveries) or {}).items():
            sums.setdefault(store, Histogram()).merge(counts)
    return {store: histogram.counts for store, histogram in sums.items()}


def _position(hop: str) -> tuple[int, str]:
    order = ("pack", "python 0", "exchange", "python", "wait", "sink", COMMIT)
    known = hop if hop in order else hop.partition(" ")[0]
    return (order.index(known) if known in order else len(order), hop)
