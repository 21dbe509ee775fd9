"""Whether somebody who looks each second was held up himself, so that what he last heard says nothing of others."""

from __future__ import annotations

__all__ = ["Lookout"]

LATE_S = 3.0
"""Whoever looks each second was held up himself if he comes later than this."""


class Lookout:
    """Notices looks that come late, as after the machine stood still; the first one counts as late."""

    def __init__(self) -> None:
        self._looked_s = float("-inf")

    def late(self, now_s: float) -> bool:
        """Look, at a monotonic time in s; whether the look before was too long ago."""
        late = now_s - self._looked_s > LATE_S
        self._looked_s = now_s
        return late
