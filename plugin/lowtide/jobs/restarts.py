"""Decides whether a program restarts its job, and after which pause."""

from __future__ import annotations

from collections import deque

FIRST_PAUSE_S = 0.5
MOST_PAUSE_S = 15.0


class Restarts:
    """Counts the ends of lives within a window.

    Args:
        most: How many restarts there may be within the window; 0 for none at all.
        within_s: The window.
    """

    def __init__(self, most: int, within_s: float) -> None:
        self.count = 0
        """Number of restarts."""
        self._most = most
        self._within_s = within_s
        self._ends: deque[float] = deque()

    def pause_s(self, now_s: float) -> float | None:
        """Note that a life has ended; return the wait before the next one, None if there must be none."""
        while self._ends and now_s - self._ends[0] > self._within_s:
            self._ends.popleft()
        if len(self._ends) >= self._most:
            return None
        before = len(self._ends)
        self._ends.append(now_s)
        self.count += 1
        return 0.0 if before == 0 else min(MOST_PAUSE_S, FIRST_PAUSE_S * 2**before)
