"""Activity beside a measurement: taking snapshots, killing processes."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.systems import System

ABANDON_LIMIT_S = 5.0
"""How long one is waited for that is abandoned: a process that it is just starting is to be known to the system."""


class Companion(ABC):
    """Something with a thread of its own, from the time at which records are sent to the last one's arrival."""

    end_limit_s = 60.0
    """How long it may take to end what it does."""

    def __init__(self) -> None:
        """Make one that has not begun."""
        self._ended = threading.Event()
        self._abandoned = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @abstractmethod
    def go(self, system: System, schedule: Schedule) -> None:
        """Do it, in its own thread; return soon after `wait_until` has said no."""

    def begin(self, system: System, schedule: Schedule) -> None:
        """Begin beside a system, whose records are due by a schedule."""
        self._thread = threading.Thread(target=self._run, args=(system, schedule), daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what has ended it, if something has."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Wait until it has ended what it does; it begins nothing new."""
        self._end(self.end_limit_s)

    def abandon(self) -> None:
        """End it where nobody wants to know any more what becomes of it."""
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
        """Wait until a time, ns since 1970; False at once if all is to end."""
        return not self._ended.wait(max(0.0, (time_ns - time.time_ns()) / NS))

    def _run(self, system: System, schedule: Schedule) -> None:
        try:
            self.go(system, schedule)
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody hears it, by `check`
            self._error = error
