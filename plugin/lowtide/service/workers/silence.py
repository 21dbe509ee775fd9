"""Detects a worker that no longer sends gauges: its process hangs where nothing interrupts it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from lowtide.service.tracker.lookout import Lookout
from lowtide.status.gauges import WorkerState
from lowtide_snapshots.cause import Cause

QUIET_S = 5.0
"""Gauges that are older say nothing of what their worker does now: its process is in a function of the flow."""


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

    def now(self, workers: Sequence[WorkerState], now_s: float) -> list[WorkerState]:
        """Return the workers as they are known to be now: gauges that are no longer true are left out.

        A worker in a long call has sent none since it began, and those that share its process have not either: what
        they said before, that nothing is to be done or that a front reads on, is no reason to end the life.

        Args:
            workers: Those of the last `look`.
            now_s: The monotonic time.
        """
        heard = self._heard
        return [
            replace(worker, gauges=None) if now_s - heard[worker.worker][1] > QUIET_S else worker for worker in workers
        ]
