"""When a host flushes to the tracker: at once if min time may move by it, else later, with all that comes meanwhile."""

from __future__ import annotations

from lowtide.core.fronts.floors import NO_TICK

FLUSH_S = 0.002
"""Least time between two flushes, but for early ones: what others wait for is late by no more."""
EARLY_FLUSHES = 4
"""The number of early flushes that may follow each other at once; over time there is one in `FLUSH_S`."""


class FlushPace:
    """Paces the flushes of one host.

    Min time goes no further than the lowest heartbeat. A flush that raises the lowest one of the host's own fronts
    may be the one that all wait for, so it is early: it does not keep the distance. Where fronts follow their log the
    lowest rises once a tick at most, so early flushes are few; while they work off a backlog it rises with every turn,
    and then early flushes are as far apart as others.

    Example:
        >>> pace = FlushPace()
        >>> pace.flushed(10.0, lowest=5)
        >>> [pace.due(10.001, lowest) for lowest in (5, 6)]
        [False, True]
        >>> 0.0 < pace.due_s(10.0015) < FLUSH_S / 2
        True
    """

    __slots__ = ("_flushed_s", "_lowest", "_paid_s")

    def __init__(self) -> None:
        self._flushed_s = 0.0
        self._lowest = NO_TICK
        """The lowest heartbeat of the last flush."""
        self._paid_s = 0.0
        """The time by which the early flushes so far would have been made if they kept their distance."""

    def due(self, now_s: float, lowest: int) -> bool:
        """Return whether to flush now.

        Args:
            now_s: The monotonic time.
            lowest: The lowest heartbeat of the host's fronts; `NO_TICK` if it has none.
        """
        if now_s - self._flushed_s >= FLUSH_S:
            return True
        return lowest > self._lowest and self._paid_s <= now_s + (EARLY_FLUSHES - 1) * FLUSH_S

    def flushed(self, now_s: float, lowest: int) -> None:
        """Note a flush, as `due` was asked for it."""
        if now_s - self._flushed_s < FLUSH_S:
            self._paid_s = max(self._paid_s, now_s) + FLUSH_S
        self._flushed_s = now_s
        self._lowest = lowest

    def due_s(self, now_s: float) -> float:
        """Return the seconds until a flush is due in any case."""
        return max(0.0, self._flushed_s + FLUSH_S - now_s)
