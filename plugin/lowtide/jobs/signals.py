"""Signals to a job's process: the first one stops it cleanly within a limit, the second one at once.

`HAND_OVER` stops it as cleanly, but for a standby to continue the job.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from lowtide.service.standbys import HAND_OVER

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130


class StopAsked(BaseException):
    """A signal came while the job was starting; passes all handlers of errors, as KeyboardInterrupt does."""


class Signals:
    """The signals of one run.

    Attributes:
        asked: The first signal that asked for the end; None before one came.
    """

    def __init__(self, limit_s: float, give_up: Callable[[str, int], None]) -> None:
        """Set what happens when a clean end takes too long or a second signal comes; no handler is installed yet.

        Args:
            limit_s: How long the end may take after the first signal.
            give_up: Given why and the exit code; has to end the process. Called in any thread.
        """
        self.asked: signal.Signals | None = None
        self._limit_s = limit_s
        self._give_up = give_up
        self._breaks_off = False

    def hear(self, *, breaks_off: bool) -> None:
        """Handle the signals from now on; in the main thread only.

        Args:
            breaks_off: Whether a signal raises `StopAsked` in what is being done, or is only noted.
        """
        self._breaks_off = breaks_off
        for number in (*HEARD, HAND_OVER):
            signal.signal(number, self._heard)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if self.asked is None:
            self.asked = signal.Signals(number)
            self.limit()
            if self._breaks_off:
                raise StopAsked
        elif number == signal.SIGINT:
            self._give_up("it was interrupted twice", INTERRUPTED)

    def check(self) -> None:
        """Raise `StopAsked` once more where it was lost; to be called between the steps of a start.

        Python drops exceptions that a handler raises in a finalizer or at a fork; a start would then run to its end.
        """
        if self._breaks_off and self.asked is not None:
            raise StopAsked

    def limit(self) -> None:
        """Begin to count the time that the end may take."""
        why = f"it did not stop within {self._limit_s:g} s"
        timer = threading.Timer(self._limit_s, self._give_up, (why, 5))
        timer.daemon = True
        timer.start()


def end_now(code: int) -> None:
    """End this process without another word."""
    os._exit(code)
