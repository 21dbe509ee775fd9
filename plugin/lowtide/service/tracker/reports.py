"""Times a process's reports: as soon as something moves, not too often, and now and then while nothing does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LEAST_S = 0.05
"""The shortest time from one report to the next."""
QUIET_S = 0.5
"""The time from one to the next while nothing moves: they show that the process lives, and what it counts."""


class Reports:
    """Reports of one process, in its event loop; the first one goes at once.

    Args:
        say: Sends the current state; returns False if that cannot be taken, and is then called again.
    """

    def __init__(self, say: Callable[[], bool]) -> None:
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._due = True
        """True if something has moved that is not reported."""
        self._said_s = self._loop.time()
        self._later: asyncio.Handle = self._loop.call_soon(self._report)

    def moved(self) -> None:
        """Report a move in this turn of the loop, or once the last report is old enough."""
        if not self._due:
            self._due = True
            self._later.cancel()
            self._later = self._loop.call_at(self._said_s + LEAST_S, self._report)

    def close(self) -> None:
        """Stop reporting."""
        self._due = True
        self._later.cancel()

    def _report(self) -> None:
        self._said_s = self._loop.time()
        self._due = not self._say()
        self._later = self._loop.call_later(LEAST_S if self._due else QUIET_S, self._report)
