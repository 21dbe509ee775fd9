"""Puts the status of a job together from what the service knows at one moment; values in, a value out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lowtide.core.fronts.floors import LAST_TICK, NO_TICK
from lowtide.status.gauges import FrontGauges, KeptGauges, LineGauges, WorkerState
from lowtide.status.job_view import FrontView, JobView, SegmentView, ShardView, SinkView, TrackerView, WorkerView
from lowtide.status.moment import JobShape, Moment
from lowtide.status.recent import Recent, totals_of

__all__ = ["AT", "delivered_time", "job_view"]

AT = " at "
"""Stands before the time in the text that names a holder; what is before it does not change with time."""


def job_view(shape: JobShape, moment: Moment, recent: Recent, events: Iterable[Mapping[str, Any]] = ()) -> JobView:
    """Put the status of a job together; O(workers + fronts + segments)."""
    teller = _Teller(shape, moment)
    tracker = moment.tracker
    min_time_ms = None if tracker is None else teller.time_ms(tracker.global_min)
    return JobView(
        job=shape.job,
        incarnation=shape.incarnation,
        phase=moment.phase,
        cause=moment.cause,
        troubles=list(moment.troubles),
        clock_jump_ms=moment.clock_jump_ms,
        started_ms=shape.started_ms,
        seen_ms=moment.now_ms,
        control=moment.control,
        min_time_ms=min_time_ms,
        lag_ms=teller.lag_ms(min_time_ms),
        holder=teller.holder(),
        held_s=recent.held_s,
        chain=list(moment.chain),
        delivered_time_ms=teller.time_ms(moment.delivered_time),
        rates=recent.rates,
        totals=recent.totals,
        latency_ms=recent.percentiles("latency"),
        hops={name: recent.percentiles(name) for name in recent.hops},
        segments=teller.segments(),
        fronts=teller.fronts(),
        workers=[_worker(worker) for worker in moment.workers],
        sinks=teller.sinks(),
        kept=teller.kept(),
        tracker=teller.tracker(),
        snapshots=moment.snapshots,
        events=[dict(event) for event in events],
    )


def delivered_time(workers: Sequence[WorkerState], expected: int) -> int | None:
    """Return the tick below which all workers' lanes are durable: to be stored, then published (R18).

    Args:
        workers: As in `Moment`; each says its own as the gauge `delivered_time`.
        expected: How many workers have lanes. None is returned until so many have said theirs.
    """
    told = [None if worker.gauges is None else worker.gauges.delivered_time for worker in workers]
    ticks = [tick for tick in told if tick is not None]
    if not ticks or len(ticks) < max(expected, len(told)):
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
        held = tracker.held
        if held is None:
            return tracker.holder
        if held.owner is not None:
            place = f"worker {held.owner} before segment {held.segment}"
            return f"work due for {place}{AT}{self._tick_name(held.tick)}" if held.told else f"{place}: not begun"
        if not held.at_front:
            return f"an open ack of segment {held.segment}{AT}{self._tick_name(held.tick)}"
        return tracker.holder if held.front is None else self._front_name(held.front)

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
        lines = self._lines()
        views = []
        for segment in sorted({*names, *min_times}):
            min_time_ms = self.time_ms(min_times.get(segment))
            views.append(
                SegmentView(
                    segment=segment,
                    name=names.get(segment, ""),
                    min_time_ms=min_time_ms,
                    lag_ms=self.lag_ms(min_time_ms),
                    holder=self.holder() if segment == held else "",
                    acks=sum(line.acks.get(segment, 0) for line in lines),
                )
            )
        return views

    def fronts(self) -> list[FrontView]:
        known: dict[int, tuple[str, FrontGauges | None]]
        known = {front: ("", gauges) for front, gauges in self._moment.idle_fronts.items()}
        for worker in self._moment.workers:
            if worker.gauges is not None and worker.gauges.front is not None:
                known[worker.gauges.front.front] = (worker.worker, worker.gauges.front)
        return [self._front(front, *known.get(front, ("", None))) for front in sorted({*self._moment.fronts, *known})]

    def _front(self, front: int, worker: str, gauges: FrontGauges | None) -> FrontView:
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
        )

    def kept(self) -> dict[str, KeptGauges]:
        """Return the state of all workers together, by step or side of a join."""
        found: dict[str, KeptGauges] = {}
        for worker in self._moment.workers:
            steps = None if worker.gauges is None else worker.gauges.kept
            for step, kept in (steps or {}).items():
                found[step] = found[step].and_(kept) if step in found else kept
        return found

    def sinks(self) -> list[SinkView]:
        shape, workers = self._shape, self._moment.workers
        views = []
        for name, (level, lanes) in shape.sinks.items():
            of_level = [worker.gauges for worker in workers if worker.level == level and worker.gauges is not None]
            counts = [gauges.sinks.get(name, 0) for gauges in of_level if gauges.sinks is not None]
            whole = sum(gauges.delivered for gauges in of_level)
            delivered = sum(counts) if counts else whole if len(shape.sinks) == 1 else None
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
                    delivered=delivered,
                    transactions=transactions,
                    delivery=shape.delivery,
                )
            )
        return views


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
