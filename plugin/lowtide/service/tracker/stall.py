"""Detects that min time stands without a reason: names the lost frame, and ends the life for a replay (R10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lowtide.service.tracker.lookout import Lookout
from lowtide.status.gauges import WorkerState
from lowtide.status.tracker_report import TrackerReport
from lowtide_snapshots.cause import Cause


class Stall:
    """Watches the global min time, and that fronts get what is in their partitions; pure.

    Min time counts as stalled while an ack is open at the same tick though no worker has anything to do: what would
    close it is no longer on its way. Waiting for a front does not count, nor does a busy worker, nor one that waits for
    an outside service: each try has its own limit. A front counts while a record lies at the very offset that it
    expects next and it would take it: its reader does not reach the broker that the service reaches.

    Args:
        limit_s: The time that a stall may last.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._held: object = None
        self._since = 0.0
        self._lookout = Lookout()
        self._fronts_lookout = Lookout()
        self._unread: dict[tuple[str, int], float] = {}
        """By partition and offset, the time since which that record has been expected."""

    def unread(
        self, records: Mapping[int, tuple[str, int, float]], workers: Iterable[WorkerState], now_s: float
    ) -> Cause | None:
        """Return the front that has not got a record of its partition for longer than the limit; else None.

        Args:
            records: By front its partition, the offset of a record that is expected next, and its waiting time.
            workers: All of the life.
            now_s: The monotonic time; call it each second, like `look`.
        """
        waiting = {}
        for gauges in (worker.gauges for worker in workers):
            front = None if gauges is None or not gauges.attached else gauges.front
            if front is None or not front.pulling:
                continue
            name, offset, lay_s = records.get(front.front, ("", -1, 0.0))
            if lay_s and front.next_offset == offset:
                waiting[name, offset] = self._unread.get((name, offset), now_s)
        self._unread = {} if self._fronts_lookout.late(now_s) else waiting
        for (name, offset), since in self._unread.items():
            if now_s - since >= self._limit_s:
                return Cause(
                    "loss",
                    f"min time is stuck at front {name}: its worker has not received the record at offset {offset} for "
                    f"{now_s - since:.0f} s, though the service can read it",
                    way_out="make sure that every executor reaches every broker (its log names those it does not), "
                    "then start the job again",
                )
        return None

    def look(self, report: TrackerReport, workers: Iterable[WorkerState], now_s: float) -> Cause | None:
        """Return what stands, and for how long, once it is over the limit; else None.

        Call it each second. If this process itself was stalled, its view is stale: the time starts again.
        """
        if self._lookout.late(now_s):
            self._since = now_s
        held = report.held
        busy = any(_has_to_do(worker) for worker in workers)
        if held is None or held.at_front or busy or held != self._held:
            self._held, self._since = held, now_s
            return None
        stood_s = now_s - self._since
        if stood_s < self._limit_s:
            return None
        return Cause(
            "loss",
            f"min time has not moved for {stood_s:.0f} s though no worker has anything to do: {report.holder}. "
            "A frame or its ack was lost",
            way_out="start the job again: it replays from its log",
        )


def _has_to_do(worker: WorkerState) -> bool:
    """Return whether a worker works, or a service that it has asked may; so it is where it has said nothing."""
    gauges = worker.gauges
    return gauges is None or gauges.busy or any(call.open for call in (gauges.calls or {}).values())
