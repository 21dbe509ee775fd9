"""Detects that our own loop was stalled, so that silence from others proves nothing."""

from __future__ import annotations

LATE_S = 3.0
"""The time between two looks beyond which a loop that looks each second was itself stalled."""


class Lookout:
    """Detects late looks, as after the machine stood still; the first one counts as late."""

    def __init__(self) -> None:
        self._looked_s = float("-inf")

    def late(self, now_s: float) -> bool:
        """Look, at a monotonic time in s; return whether the look before was too long ago."""
        late = now_s - self._looked_s > LATE_S
        self._looked_s = now_s
        return late
