"""Ends a life whose sources have all reached their stops: once everything is delivered and committed, it is over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lowtide.core.fronts.end import end_tick
from lowtide.errors import SnapshotFailed
from lowtide.events import EventLog
from lowtide.service.snapshots.coordinator import Coordinator

AGAIN_AFTER_S = 10.0
"""The time from a failed last snapshot to the next one."""


class EndOfTime:
    """Watches for the end of time; belongs to the service's event loop.

    Args:
        slack_ms: Length of a tick in ms.
        snapshots: The coordinator; None while there is none.
        takes: True if snapshots are taken at all.
        events: Receives the end.
    """

    def __init__(
        self, slack_ms: int, snapshots: Callable[[], Coordinator | None], *, takes: bool, events: EventLog
    ) -> None:
        self.reached = False
        """True if nothing is left to do: all is delivered, and committed if snapshots are taken."""
        self._tick = end_tick(slack_ms)
        self._snapshots = snapshots
        self._takes = takes
        self._events = events
        self._last: str | None = None
        self._failed_s = float("-inf")

    def look(self, delivered: int | None, now_s: float) -> bool:
        """Return whether time has reached its end, and take care of the last commit; call it each second.

        Args:
            delivered: The tick below which all is durable; None while unknown.
            now_s: The monotonic time.
        """
        if not self.has_come(delivered):
            return False
        if not self.reached and self._is_committed(now_s):
            self.reached = True
            self._events.event("sources_ended")
        return True

    def has_come(self, delivered: int | None) -> bool:
        """Return whether time has reached its end; see `look`."""
        return delivered is not None and delivered >= self._tick

    def _is_committed(self, now_s: float) -> bool:
        if not self._takes:
            return True
        snapshots = self._snapshots()
        if snapshots is None:
            return False
        # A job that had already ended is started again: it has nothing to add.
        if snapshots.commits.newest >= self._tick:
            return True
        phase = next((each.phase for each in snapshots.views() if each.id == self._last), "failed")
        if phase == "failed" and now_s >= self._failed_s + AGAIN_AFTER_S:
            self._failed_s = now_s
            with suppress(SnapshotFailed):
                self._last = snapshots.begin(None, commit=True).id
        return False
