"""Finds a function of the flow that does not return, by a signal each second, outside the loop itself."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from types import FrameType

from lowtide.worker.busy import Busy, Doing, called
from lowtide_snapshots.cause import Cause

LOOK_S = 1.0
STANDS_S = 2.0
"""The time from which on a function that does not return is reported to the service each second."""


class CallLimit:
    """Watches that turns of a loop end; the loop runs in the process's main thread.

    A machine that stood still is not mistaken for a function that does: only seconds in which the signal came count.
    Code that never returns to Python, as in a C library, is not seen here; the service then misses the worker's gauges.

    Args:
        limit_s: The longest time a turn may last.
        report: Called once with the function that the turn is in.
        stands: Called each second with the step that a turn is in and does not leave, and for how long, from
            `STANDS_S` on.

    Attributes:
        turns: Counted up by the loop.
        busy: The steps in which the looks have found the loop.
    """

    def __init__(self, limit_s: float, report: Callable[[Cause], None], stands: Callable[[Doing, float], None]) -> None:
        self.turns = 0
        self.busy = Busy()
        self._limit_s = limit_s
        self._report = report
        self._stands = stands
        self._seen = -1
        self._stood_s = 0.0

    def begin(self) -> None:
        """Check each second, until `end`."""
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)

    def end(self) -> None:
        """Stop checking."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def _look(self, _signal: int, frame: FrameType | None) -> None:
        self._stood_s = self._stood_s + LOOK_S if self.turns == self._seen else 0.0
        self._seen = self.turns
        found = self.busy.look(frame)
        if found.step and self._stood_s >= STANDS_S:
            self._stands(found, self._stood_s)
        if self._stood_s < self._limit_s or frame is None:
            return
        self.end()
        function = called(frame)
        what = f"the function {function}" if function else "Lowtide itself"
        self._report(
            Cause(
                "loss",
                f"{what} has not returned for {self._stood_s:g} s",
                way_out="add a time-out to what it waits for; if it needs that long, raise [worker].call_limit_s",
                details="".join(traceback.format_stack(frame)),
            )
        )
