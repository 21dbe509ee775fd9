"""Detects a worker that no longer sends gauges: its process hangs where nothing interrupts it."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.service.tracker.lookout import Lookout
from lowtide.status.gauges import WorkerState
from lowtide_snapshots.cause import Cause

__all__ = ["Silence"]


class Silence:
    """Watches that every worker sends gauges, as a running loop does each second; pure.

    Args:
        limit_s: The time for which a worker that has sent some may send none.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._heard: dict[str, tuple[object, float]] = {}
        self._lookout = Lookout()

    def look(self, workers: Sequence[WorkerState], now_s: float) -> Cause | None:
        """Return the silent worker and for how long, once it is over the limit; else None.

        Args:
            workers: All of the life; each time a worker has sent something, its `gauges` are another object.
            now_s: The monotonic time; call it each second.
        """
        late, heard = self._lookout.late(now_s), self._heard
        self._heard = {}
        for worker in workers:
            name, gauges = worker.worker, worker.gauges
            before, since_s = heard.get(name, (None, now_s))
            if gauges is None or gauges is not before or late:
                since_s = now_s
            self._heard[name] = gauges, since_s
            if now_s - since_s >= self._limit_s:
                return Cause(
                    "loss",
                    f"worker {name} has been silent for {now_s - since_s:.0f} s: a function of the flow, or a library "
                    "that it calls, blocks its process",
                    way_out="add a time-out to what it waits for; its executor's log may say more",
                )
        return None
