"""Puts the status of a job together from what the service knows at one moment; values in, a value out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from lowtide.core.fronts.floors import LAST_TICK, NO_TICK
from lowtide.status.advice import Held, advice
from lowtide.status.gauges import (
    CallerGauges,
    CallGauges,
    DiskGauges,
    FrontGauges,
    KeptGauges,
    LateGauges,
    LetterGauges,
    LineGauges,
    SinkGauges,
    TraceGauges,
    WorkerState,
)
from lowtide.status.job_view import (
    CallView,
    FrontView,
    JobView,
    LevelView,
    SegmentView,
    ShardView,
    SinkView,
    StagedView,
    StepView,
    TrackerView,
    TroubleView,
    WorkerView,
)
from lowtide.status.moment import OUTLET, JobShape, Moment
from lowtide.status.recent import BusyStep, Recent, passed_of, totals_of
from lowtide.status.troubles import EXPLAINS_HOLDER, Found, find_troubles
from lowtide_tracker import Holder

AT = " at "
"""Stands before the time in the text that names a holder; what is before it does not change with time."""


def job_view(
    shape: JobShape,
    moment: Moment,
    recent: Recent,
    events: Iterable[Mapping[str, Any]] = (),
    since: Mapping[tuple[str, str], int] = MappingProxyType({}),
) -> JobView:
    """Put the status of a job together; O(workers + fronts + segments).

    Args:
        shape: What stays the same.
        moment: What the service sees.
        recent: The last seconds.
        events: The last events.
        since: By kind and name of a trouble when it was first found, ms since 1970.
    """
    teller = _Teller(shape, moment)
    tracker = moment.tracker
    min_time_ms = None if tracker is None else teller.time_ms(tracker.global_min)
    fronts, sinks, letters = teller.fronts(recent), teller.sinks(), teller.letters()
    lag_ms = teller.lag_ms(min_time_ms)
    found = find_troubles(shape, moment, recent, lag_ms=lag_ms, fronts=fronts, sinks=sinks, letters=letters)
    named = [_named(each, moment.now_ms, since) for each in found]
    told = [staged.trouble for staged in moment.staged.values()]
    explained = any(each.kind in EXPLAINS_HOLDER for each in found)
    return JobView(
        job=shape.job,
        incarnation=shape.incarnation,
        phase=moment.phase,
        cause=moment.cause,
        troubles=[*(each for each in moment.troubles if each not in told), *(each.says for each in named)],
        found=named,
        clock_jump_ms=moment.clock_jump_ms,
        started_ms=shape.started_ms,
        seen_ms=moment.now_ms,
        control=moment.control,
        min_time_ms=min_time_ms,
        lag_ms=lag_ms,
        holder=teller.holder(),
        held_s=recent.held_s,
        to_do=[] if explained else teller.to_do(),
        chain=list(moment.chain),
        delivered_time_ms=teller.time_ms(moment.delivered_time),
        rates=recent.rates,
        totals=recent.totals,
        latency_ms=recent.percentiles("latency"),
        hops={name: recent.percentiles(name) for name in recent.hops},
        steps=teller.steps(recent.totals.late, letters, recent.busy_steps()),
        levels=teller.levels(recent),
        segments=teller.segments(),
        fronts=fronts,
        workers=[_worker(worker) for worker in moment.workers],
        sinks=sinks,
        kept=teller.kept(),
        calls=_calls(teller.calls(), recent),
        caller_restarts=teller.caller_restarts(),
        disk=teller.disk(),
        traces=teller.traces(),
        retries=teller.retries(),
        refused=teller.refused(),
        protocols=teller.protocols(),
        letters=letters,
        dead_letters=shape.dead_letters,
        tracker=teller.tracker(),
        snapshots=moment.snapshots,
        connections=dict(shape.connections),
        standbys=list(moment.standbys),
        events=[dict(event) for event in events],
    )


def _named(found: Found, now_ms: int, since: Mapping[tuple[str, str], int]) -> TroubleView:
    """Return a trouble with the time since when."""
    begun_ms = since.get((found.kind, found.name), now_ms)
    if found.for_s is not None:
        begun_ms = min(begun_ms, now_ms - round(found.for_s * 1000))
    says = found.says
    if not says.startswith("since "):
        says = f"since {datetime.fromtimestamp(begun_ms / 1000, UTC):%H:%M:%S} UTC: {says}"
    return TroubleView(
        kind=found.kind,
        name=found.name,
        since_ms=begun_ms,
        headline=found.headline,
        says=says,
        to_do=list(found.to_do),
    )


def delivered_time(workers: Sequence[WorkerState], expected: int) -> int | None:
    """Return the tick below which all workers' lanes are durable: to be stored, then published (R18).

    Args:
        workers: As in `Moment`; each says its own as the gauge `delivered_time`.
        expected: How many workers have lanes. None is returned until so many have said theirs.
    """
    times = [None if worker.gauges is None else worker.gauges.delivered_time for worker in workers]
    ticks = [tick for tick in times if tick is not None]
    if not ticks or len(ticks) < max(expected, len(times)):
        return None
    lowest = int(min(ticks))
    return None if lowest <= NO_TICK else lowest


class _Teller:
    """Says ticks as times and numbers by their names."""

    def __init__(self, shape: JobShape, moment: Moment) -> None:
        self._shape = shape
        self._moment = moment

    def time_ms(self, tick: int | None) -> int | None:
        # Tick 0 is where the first life begins, before anything is known.
        return None if tick is None or not 0 < tick < LAST_TICK else tick * self._shape.slack_ms

    def lag_ms(self, time_ms: int | None) -> int | None:
        return None if time_ms is None else max(0, self._moment.now_ms - time_ms)

    def holder(self) -> str:
        """Name the holder of min time: a front with its partition, an open ack with its segment and its time."""
        tracker = self._moment.tracker
        if tracker is None:
            return ""
        return tracker.holder if tracker.held is None else self._said(tracker.held, tracker.holder)

    def _said(self, held: Holder, otherwise: str) -> str:
        """Name a holder; `otherwise` where no front is open."""
        called = self._calls_that_hold(held)
        if called is not None:
            step, opened = called
            what = f'open calls of "{step}"' if opened else f'answers to calls of "{step}" that are not yet durable'
            return f"{what}{AT}{self._tick_name(held.tick)}"
        if held.owner is not None:
            owner = f"worker {held.owner} before segment {held.segment}"
            return f"work due for {owner}{AT}{self._tick_name(held.tick)}" if held.reported else f"{owner}: not begun"
        if not held.at_front:
            return f"an open ack of segment {held.segment}{AT}{self._tick_name(held.tick)}"
        return otherwise if held.front is None else self._front_name(held.front)

    def _calls_that_hold(self, held: Holder) -> tuple[str, int] | None:
        """Return the step whose calls keep min time from moving, and how many are open; None if none do."""
        called = [(calls.first, step, calls.open) for step, calls in self.calls().items() if calls.first is not None]
        if not called or min(called)[0] > held.tick or held.at_front:
            return None
        _, step, opened = min(called)
        return step, opened

    def to_do(self) -> list[str]:
        """Say what to do if min time goes on standing where it is."""
        held = self._held()
        return [] if held is None else advice(*held, self._shape.job)

    def _held(self) -> tuple[Held, str] | None:
        """Return what kind of holder min time has, and its name; None if it is not known."""
        tracker = self._moment.tracker
        held = None if tracker is None else tracker.held
        if self._moment.chain:
            return "job", ""
        if held is None:
            return None
        called = self._calls_that_hold(held)
        if called is not None:
            return "call" if called[1] else "answers", called[0]
        if held.at_front:
            return None if held.front is None else self._held_front(held.front)
        if held.owner is not None and not held.reported:
            return "not begun", f"worker {held.owner} before segment {held.segment}"
        steps = self._shape.segments.get(held.segment, OUTLET)
        return ("sink", steps[1:-1]) if steps.startswith("(") else ("step", steps)

    def _held_front(self, number: int) -> tuple[Held, str]:
        name = self._front_name(number)
        front = next((each for each in self.fronts(Recent()) if each.front == number), None)
        if front is None or not front.worker:
            return "idle front", name
        return "front" if front.pulling else "stopped front", name

    def steps(
        self, late: Mapping[str, LateGauges], letters: Mapping[str, LetterGauges], busy: Sequence[BusyStep]
    ) -> list[StepView]:
        """Return the flow's steps, which of them hold min time, and which take much of a process's time."""
        shares: dict[str, float] = {}
        for step in busy:
            shares.setdefault(step.step, step.share)
        tracker = self._moment.tracker
        held = None if tracker is None else tracker.held
        called = None if held is None else self._calls_that_hold(held)
        segment = None if held is None or held.at_front or called is not None else held.segment
        return [
            StepView(
                step=each.name,
                does=each.word,
                level=each.level,
                after=list(each.after),
                holds=segment in each.segments or (called is not None and called[0] == each.name),
                late=0 if each.word == "write" else sum(_of_step(each.name, late)),
                busy=0.0 if each.word == "write" else shares.get(each.name, 0.0),
                letters=0 if each.name not in letters else letters[each.name].records,
            )
            for each in self._shape.steps
        ]

    def levels(self, recent: Recent) -> list[LevelView]:
        """Return the levels, each with what has passed its workers."""
        passed = passed_of(self._moment.workers)
        views = []
        for level in sorted({*passed, *(each.level for each in self._shape.steps)}):
            (come, gone), per_s = passed.get(level, (0, 0)), recent.passed_per_s(level)
            views.append(
                LevelView(
                    level=level,
                    workers=sum(each.level == level and each.gauges is not None for each in self._moment.workers),
                    records_in=come,
                    records_out=gone,
                    in_per_s=None if per_s is None else per_s[0],
                    out_per_s=None if per_s is None else per_s[1],
                )
            )
        return views

    def tracker(self) -> TrackerView:
        tracker, restarts = self._moment.tracker, self._moment.restarts
        if tracker is None:
            return TrackerView(restarts=restarts)
        shards = tuple(
            ShardView(shard=each.shard, era=each.era, pid=each.pid, traffic=each.traffic, trouble=each.trouble)
            for each in tracker.shards
        )
        records = totals_of(self._moment.workers).records_in
        messages = sum(line.traffic.messages_in + line.traffic.messages_out for line in self._lines())
        return TrackerView(
            era=tracker.era,
            pid=tracker.pid,
            floors=tracker.floors,
            restarts=restarts,
            workers=tracker.workers,
            traffic=tracker.traffic,
            messages_per_record=messages / records if records else None,
            shards=shards,
        )

    def _lines(self) -> list[LineGauges]:
        """Return each process's count of its traffic with the tracker."""
        gauges = [worker.gauges for worker in self._moment.workers if worker.gauges is not None]
        return [each.line for each in gauges if each.line is not None]

    def _front_name(self, front: int) -> str:
        partition = self._moment.fronts.get(front)
        return f"front {front} ({partition})" if partition else f"front {front}"

    def _tick_name(self, tick: int) -> str:
        time_ms = self.time_ms(tick)
        try:
            moment = None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            moment = None
        return f"tick {tick}" if moment is None else moment.isoformat(sep=" ", timespec="milliseconds")[:-6]

    def segments(self) -> list[SegmentView]:
        tracker, names = self._moment.tracker, self._shape.segments
        min_times = {} if tracker is None else tracker.min_times
        held = None if tracker is None or tracker.held is None else tracker.held.segment
        whole, parts = self._shape.whole(min_times), {each.part: each for each in self._shape.parts}
        holders = {} if tracker is None else tracker.holders
        lines = self._lines()
        views = []
        for segment in sorted({*names, *min_times}):
            min_time_ms = self.time_ms(whole.get(segment))
            part, own = parts.get(segment), holders.get(segment)
            views.append(
                SegmentView(
                    segment=segment,
                    name=names.get(segment, ""),
                    min_time_ms=min_time_ms,
                    lag_ms=self.lag_ms(min_time_ms),
                    holder=self.holder() if segment == held else "",
                    acks=sum(line.acks.get(segment, 0) for line in lines),
                    lanes=[] if part is None else list(part.lanes),
                    waits_for="" if part is None or own is None else self._said(own, str(own)),
                )
            )
        return views

    def fronts(self, recent: Recent) -> list[FrontView]:
        known: dict[int, tuple[str, FrontGauges | None]]
        known = {front: ("", gauges) for front, gauges in self._moment.idle_fronts.items()}
        for worker in self._moment.workers:
            if worker.gauges is not None and worker.gauges.front is not None:
                known[worker.gauges.front.front] = (worker.worker, worker.gauges.front)
        return [
            self._front(front, *known.get(front, ("", None)), quiet_s=recent.since_s("front", front))
            for front in sorted({*self._moment.fronts, *known})
        ]

    def _front(self, front: int, worker: str, gauges: FrontGauges | None, quiet_s: float | None) -> FrontView:
        heartbeat_ms = None if gauges is None else self.time_ms(gauges.heartbeat)
        return FrontView(
            front=front,
            partition=self._moment.fronts.get(front, f"front {front}"),
            worker=worker,
            heartbeat_ms=heartbeat_ms,
            lag_ms=self.lag_ms(heartbeat_ms),
            next_offset=None if gauges is None else gauges.next_offset,
            parked=0 if gauges is None else gauges.parked,
            pulling=gauges is None or gauges.pulling,
            own_floors=0 if gauges is None else gauges.own_floors,
            tick_bytes=0 if gauges is None else gauges.tick_bytes,
            overfull=gauges is not None and gauges.overfull,
            spare=self._moment.spare.get(front),
            quiet_s=quiet_s,
        )

    def calls(self) -> dict[str, CallGauges]:
        """Return the calls of each step."""
        found: dict[str, CallGauges] = {}
        for worker in self._moment.workers:
            steps = None if worker.gauges is None else worker.gauges.calls
            for step, calls in (steps or {}).items():
                found[step] = found[step].and_(calls) if step in found else calls
        return found

    def caller_restarts(self) -> int:
        """Return how often a process that asks services was made again; a host counts with one of its workers."""
        known = [worker.gauges.caller_restarts for worker in self._moment.workers if worker.gauges is not None]
        return sum(restarts or 0 for restarts in known)

    def disk(self) -> DiskGauges | None:
        """Return the state on disk of all processes together; None if there is none."""
        found: DiskGauges | None = None
        for worker in self._moment.workers:
            disk = None if worker.gauges is None else worker.gauges.disk
            if disk is not None:
                found = disk if found is None else found.and_(disk)
        return found

    def traces(self) -> TraceGauges | None:
        """Return the spans of all processes together; None if nothing is traced."""
        found: TraceGauges | None = None
        for worker in self._moment.workers:
            traces = None if worker.gauges is None else worker.gauges.traces
            if traces is not None:
                found = traces if found is None else found.and_(traces)
        return found

    def kept(self) -> dict[str, KeptGauges]:
        """Return the state of all workers together, by step or side of a join."""
        found: dict[str, KeptGauges] = {}
        for worker in self._moment.workers:
            steps = None if worker.gauges is None else worker.gauges.kept
            for step, kept in (steps or {}).items():
                found[step] = found[step].and_(kept) if step in found else kept
        return found

    def retries(self) -> dict[str, dict[str, int]]:
        """Return what processes have tried again, by store and reason; each process counts with one of its workers."""
        found: dict[str, dict[str, int]] = {}
        for worker in self._moment.workers:
            for store, counts in ((worker.gauges and worker.gauges.retries) or {}).items():
                sums = found.setdefault(store, {})
                for why, count in counts.items():
                    sums[why] = sums.get(why, 0) + count
        return found

    def refused(self) -> dict[str, int]:
        """Return how many rows were set aside, by sink."""
        found: Counter[str] = Counter()
        for worker in self._moment.workers:
            found.update((worker.gauges and worker.gauges.refused) or {})
        return dict(found)

    def protocols(self) -> dict[str, list[str]]:
        """Return in which ways hosts speak with a store, by store."""
        found: dict[str, set[str]] = {}
        for worker in self._moment.workers:
            for store, protocol in ((worker.gauges and worker.gauges.protocols) or {}).items():
                found.setdefault(store, set()).add(protocol)
        return {store: sorted(protocols) for store, protocols in sorted(found.items())}

    def letters(self) -> dict[str, LetterGauges]:
        """Return the dead letters of all workers, by step."""
        found: dict[str, LetterGauges] = {}
        for worker in self._moment.workers:
            for step, dead in ((worker.gauges and worker.gauges.letters) or {}).items():
                found[step] = found[step].and_(dead) if step in found else dead
        return found

    def _silent_stores(self) -> dict[str, str]:
        """Return by store why it has taken nothing lately."""
        found: dict[str, str] = {}
        for worker in self._moment.workers:
            found.update((worker.gauges and worker.gauges.stores) or {})
        return found

    def sinks(self) -> list[SinkView]:
        silent = self._silent_stores()
        shape, workers = self._shape, self._moment.workers
        views = []
        for name, (level, lanes) in shape.sinks.items():
            delivered = SinkGauges()
            for worker in workers:
                counts = None if worker.gauges is None else worker.gauges.sinks
                delivered = delivered.and_((counts or {}).get(name, SinkGauges()))
            newest_ms = self.time_ms(delivered.newest)
            processes = {(worker.executor, worker.pid) for worker in workers if worker.level == level}
            # A process counts its transactions with one of its workers, of whichever level.
            transactions = sum(
                worker.gauges.transactions or 0
                for worker in workers
                if worker.gauges is not None and (worker.executor, worker.pid) in processes
            )
            views.append(
                SinkView(
                    sink=name,
                    lanes=lanes,
                    delivered=delivered.records,
                    bytes=delivered.bytes,
                    newest_ms=newest_ms,
                    lag_ms=self.lag_ms(newest_ms),
                    transactions=transactions,
                    delivery=shape.delivery,
                    staged=self._staged(name),
                    store=shape.stores.get(name, ""),
                    waiting=delivered.waiting,
                    waits_s=delivered.waits_s,
                    trouble=silent.get(shape.stores.get(name, ""), "") if delivered.waiting else "",
                )
            )
        return views

    def _staged(self, sink: str) -> StagedView | None:
        staged = self._moment.staged.get(sink)
        if staged is None:
            return None
        return StagedView(
            visible_time_ms=staged.visible_ms,
            lag_ms=self.lag_ms(staged.visible_ms),
            records=staged.records,
            bytes=staged.bytes,
            restarts=staged.restarts,
            pid=staged.pid,
            counts=dict(staged.counts),
        )


def _of_step(step: str, late: Mapping[str, LateGauges]) -> Iterator[int]:
    """Yield how many were late for a step, by side if it is a join."""
    return (seen.late for name, seen in late.items() if name == step or name.startswith(f"{step}/"))


def _calls(calls: Mapping[str, CallGauges], recent: Recent) -> dict[str, CallView]:
    """Put the calls of each step together, of what the step and the process that asks say."""
    found = {}
    for step, of_step in calls.items():
        asked = recent.callers.get(step, CallerGauges())
        found[step] = CallView(
            open=of_step.open,
            waiting=of_step.waiting,
            oldest_s=asked.oldest_s,
            per_s=recent.answers_per_s(step),
            took_ms=recent.call_percentiles(step),
            retries=asked.retries,
            failures=asked.failures,
            reused=of_step.reused,
        )
    return found


def _worker(worker: WorkerState) -> WorkerView:
    return WorkerView(
        worker=worker.worker,
        level=worker.level,
        executor=worker.executor,
        pid=worker.pid,
        address=worker.address,
        attached=worker.attached,
        number=worker.number,
        gauges={} if worker.gauges is None else worker.gauges.shown(),
    )
