"""Notices that are counted and not timed: what a job's processes are sent with early keys, by its workers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from lowtide.core.effects import Effects, Frame
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.schema.fields import kept
from lowtide_bench.counted import Counted
from lowtide_bench.slow_key import slow_key
from lowtide_bench.tracking.counted import FLUSH_MS, SLACK_MS
from lowtide_tracker import Graph, LocalTracker, Notice, Tracker
from lowtide_tracker.audience import Audience
from lowtide_tracker.peer import HOLD_S

FRONTS = 2
BEGIN_MS = 1_700_000_000_000
SLEEPS = 0.4
"""How likely a worker takes no frames in a turn."""
WAYS = {"off": (False, True), "all": (True, False), "named": (True, True)}
"""By the way of a count: early keys, and whether processes name the segments that matter to them."""


def by_early_keys(counts: Sequence[int], rates: Sequence[int], turns: int) -> list[dict[str, Any]]:
    """Count flushes, acks and notices by the number of workers, at so many records a second.

    A running count with dead letters; each worker, each of two fronts and the service is a process, and each flush a
    turn of the tracker's loop, which is the worst case.

    Args:
        counts: Numbers of workers.
        rates: Records a second.
        turns: Windows of `FLUSH_MS` to count.
    """
    return [
        {"workers": workers, "rate": rate, "way": way, **_Counting(workers, rate, *WAYS[way]).run(turns)}
        for workers in counts
        for rate in rates
        for way in WAYS
    ]


class _Process:
    """A process with one worker, or the service, and its line to the tracker."""

    def __init__(self, local: LocalTracker, core: WorkerCore | None) -> None:
        self.local = local
        self.core = core
        self.frames: list[Frame] = []
        """Those that have been sent to it."""
        self.notices: list[Notice] = []


class _Counting:
    def __init__(self, workers: int, rate: int, early_keys: bool, named: bool) -> None:
        flow = slow_key("counted", "source", "sink")
        lanes = max(32, workers)
        self.plan: Plan = compile_flow(
            flow, parallelism=workers, lanes=lanes, units=128, slack_ms=SLACK_MS, early_keys=early_keys
        )
        segments, start = segments_of(self.plan), BEGIN_MS // SLACK_MS
        self._random = Random(workers * rate)  # noqa: S311 - no secret
        self._rate, self._records = rate, Counted()
        fronts = dict.fromkeys(range(FRONTS), start)
        self._tracker = Tracker(
            Graph(segments.inbound), fronts, start=start, capacity_ticks=100_000, dues=segments.dues
        )
        self._fronts = [self._process(number, start, Front(
            number, FrontLimits(SLACK_MS, Window(10_000, 1 << 26), 10**6), KnownFloors(start),
        )) for number in range(FRONTS)]  # fmt: skip
        self._workers = [self._process(FRONTS + place, start, None, place) for place in range(workers)]
        service = _Process(LocalTracker(FRONTS + workers, 1, start=start), None)
        self._audience: Audience[_Process] = Audience()
        self.counts = dict.fromkeys(("flushes", "acks", "made", "notices", "entries"), 0)
        whole = self._tracker.whole_notice()
        for process in (*self._fronts, *self._workers, service):
            core = process.core
            listens, leads = (frozenset[int](), True) if core is None else (core.listens, core.leads)
            self._audience.join(process, whole, listens if named else None, global_min=leads or not named)
            process.local.hear(whole)
        self._all = [*self._fronts, *self._workers, service]
        self._made = 0

    def _process(self, number: int, start: int, front: Front | None, place: int = 0) -> _Process:
        local = LocalTracker(number, 1, start=start)
        return _Process(local, WorkerCore(self.plan, 0 if front else 1, place, tracker=local, front=front))

    def run(self, turns: int) -> dict[str, int]:
        """Go through so many windows, and return the counts."""
        held = round(HOLD_S * 1_000 / FLUSH_MS)
        for turn in range(turns):
            now_ms = BEGIN_MS + (turn + 1) * FLUSH_MS
            self._read(turn, now_ms)
            for worker in self._workers:
                if self._random.random() >= SLEEPS:
                    self._take(worker)
            for process in self._all:
                self._flush(process)
            if turn % held == held - 1:
                self._send(self._audience.late())
            for process in self._all:
                self._hear(process)
        return self.counts

    def _read(self, turn: int, now_ms: int) -> None:
        """Let fronts read what has come in this window, if anything; else they go on to the time of now."""
        due = self._rate * (turn + 1) * FLUSH_MS // 1_000
        new = range(self._made, due)
        self._made = due
        for number, process in enumerate(self._fronts):
            assert process.core is not None
            mine = [sequence for sequence in new if sequence % FRONTS == number]
            if not mine:
                continue
            keys, values = zip(*[self._records.message(sequence, 0) for sequence in mine], strict=True)
            rows = SourceRows(number, [each // FRONTS for each in mine], [now_ms] * len(mine), list(keys), list(values))
            self._spread(process, process.core.rows(rows, now_ms))

    def _take(self, process: _Process) -> None:
        frames, process.frames = process.frames, []
        for frame in frames:
            assert process.core is not None
            frame.batch = frame.batch.with_rows(
                kept(self.plan.vertices[frame.vertex].gives, frame.batch.rows, frame.payload)
            )
            self._spread(process, process.core.frame(frame))

    def _spread(self, process: _Process, effects: Effects) -> None:
        assert process.core is not None
        for frame in effects.frames:
            self._workers[frame.target].frames.append(frame)
        for sink, bundle in effects.bundles:
            self._spread(process, process.core.durable(sink, bundle.lane))

    def _flush(self, process: _Process) -> None:
        if process.core is not None:
            process.core.report()
        flush = process.local.flush()
        if flush is None:
            return
        process.local.applied(flush.number)
        self.counts["flushes"] += 1
        self.counts["acks"] += len(flush.acks)
        for notice in self._tracker.receive(flush):
            self.counts["made"] += 1
            self._send(self._audience.tell(notice))

    def _send(self, told: Sequence[tuple[_Process, Notice]]) -> None:
        for process, notice in told:
            self.counts["notices"] += 1
            self.counts["entries"] += len(notice.min_times)
            process.notices.append(notice)

    def _hear(self, process: _Process) -> None:
        heard = [process.local.hear(notice) for notice in process.notices]
        floors = tuple(floor for notice in process.notices for floor in notice.floors)
        process.notices = []
        if any(heard) and process.core is not None:
            self._spread(process, process.core.moved(floors))
