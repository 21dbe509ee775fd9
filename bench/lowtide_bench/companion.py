"""Activity beside a measurement: taking snapshots, killing processes."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.systems import System

ABANDON_LIMIT_S = 5.0
"""Wait for an abandoned companion: a process that it is just starting must become known to the system."""


class Companion(ABC):
    """Activity with a thread of its own, from the start of sending to the last record's arrival."""

    end_limit_s = 60.0
    """Limit on the end of its current action."""

    def __init__(self) -> None:
        """Make one that has not begun."""
        self._ended = threading.Event()
        self._abandoned = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @abstractmethod
    def go(self, system: System, schedule: Schedule) -> None:
        """Do its work, in its own thread; return soon after `wait_until` has returned False."""

    def begin(self, system: System, schedule: Schedule) -> None:
        """Begin beside a system whose records are due by a schedule."""
        self._thread = threading.Thread(target=self._run, args=(system, schedule), daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended it, if any."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Wait until it has finished its current action; it begins nothing new."""
        self._end(self.end_limit_s)

    def abandon(self) -> None:
        """End it without waiting for a result."""
        self._abandoned.set()
        self._end(ABANDON_LIMIT_S)

    @property
    def abandoned(self) -> bool:
        """Return whether its result is no longer wanted."""
        return self._abandoned.is_set()

    def _end(self, limit_s: float) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(limit_s)

    def wait_until(self, time_ns: int) -> bool:
        """Wait until a time, ns since 1970; return False at once if it has to end."""
        return not self._ended.wait(max(0.0, (time_ns - time.time_ns()) / NS))

    def _run(self, system: System, schedule: Schedule) -> None:
        try:
            self.go(system, schedule)
        except BaseException as error:  # noqa: BLE001 - `check` raises it, in its caller's thread
            self._error = error
