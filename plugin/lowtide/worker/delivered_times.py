"""Delivered times of a host's workers, reported while a subscriber waits for them (R18). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lowtide.assignment.messages import Delivered

EVERY_S = 0.05
"""The shortest time between two reports."""


class DeliveredTimes:
    """Decides when which times are reported; silent without a listener, and while nothing moves."""

    def __init__(self) -> None:
        self._until_s = -math.inf
        self._next_s = -math.inf
        self._said: dict[str, int] = {}

    def listen(self, until_s: float) -> None:
        """Note that somebody listens until a moment of the monotonic clock."""
        self._until_s = max(self._until_s, until_s)

    def listened(self, now_s: float) -> bool:
        """Return whether somebody listens."""
        return now_s < self._until_s

    def due(self, now_s: float) -> bool:
        """Return whether `moved` is due."""
        return self.listened(now_s) and now_s >= self._next_s

    def moved(self, times: Mapping[str, int], now_s: float) -> list[tuple[str, Delivered]]:
        """Return the times to report: those of these, ticks by worker, that have moved."""
        moved = [(worker, Delivered(tick)) for worker, tick in times.items() if self._said.get(worker) != tick]
        if moved:
            self._next_s = now_s + EVERY_S
            self._said.update(times)
        return moved
