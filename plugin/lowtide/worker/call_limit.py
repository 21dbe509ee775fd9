"""Finds a function of the flow that does not return, by a signal each second, outside the loop itself."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from lowtide_snapshots.cause import Cause

LOOK_S = 1.0
_OURS = str(Path(__file__).parents[1])


class CallLimit:
    """Watches that turns of a loop end; the loop runs in the process's main thread.

    A machine that stood still is not mistaken for a function that does: only seconds in which the signal came count.
    Code that never returns to Python, as in a C library, is not seen here; the service then misses the worker's gauges.

    Args:
        limit_s: The longest time a turn may last.
        report: Called once with the function that the turn is in.
    """

    def __init__(self, limit_s: float, report: Callable[[Cause], None]) -> None:
        self.turns = 0
        """Counted up by the loop."""
        self._limit_s = limit_s
        self._report = report
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
        if self._stood_s < self._limit_s or frame is None:
            return
        self.end()
        self._report(
            Cause(
                "loss",
                f"{_named(frame)} has not returned for {self._stood_s:g} s",
                way_out="add a time-out to what it waits for; if it needs that long, raise [worker].call_limit_s",
                details="".join(traceback.format_stack(frame)),
            )
        )


def _named(frame: FrameType) -> str:
    """Return the flow's function that this frame runs in: the outermost that is not ours, below all that are."""
    called: FrameType | None = None
    at: FrameType | None = frame
    while at is not None and not at.f_code.co_filename.startswith(_OURS):
        called, at = at, at.f_back
    if called is None:
        return "Lowtide itself"
    code = called.f_code
    return f"the function {code.co_qualname} ({code.co_filename}:{called.f_lineno})"
