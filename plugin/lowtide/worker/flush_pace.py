"""The pace of a host's flushes to the tracker: at once where min time may move, else with what comes later."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.core.fronts.floors import NO_TICK

FLUSH_S = 0.002
"""Least time between two flushes, but for early ones: what others wait for is late by no more."""
EARLY_FLUSHES = 4
"""The number of early flushes that may follow each other at once; over time there is one in `FLUSH_S`."""
LATE_FLUSH_S = 0.02
"""The time until a flush of heartbeats that nobody waits for."""


class FlushPace:
    """Paces the flushes of one host.

    Min time goes no further than the lowest heartbeat of a source's fronts, so only a flush that raises the lowest
    one of this host's may be the one that all wait for. It is early: it does not keep the distance. Where fronts follow
    their log the lowest rises once a tick at most, so early flushes are few; while they work off a backlog it rises
    with every turn, and then early flushes are as far apart as others. What other fronts promise can wait until then.

    Example:
        >>> pace = FlushPace()
        >>> pace.flushed(10.0, {"clicks": 5})
        >>> [pace.due(10.001, {"clicks": lowest}, more=True) for lowest in (5, 6)]
        [False, True]
        >>> [pace.due(10.003, {"clicks": 5}, more=more) for more in (True, False)]
        [True, False]
    """

    __slots__ = ("_distance_s", "_flushed_s", "_lowest", "_paid_s")

    def __init__(self) -> None:
        self._flushed_s = 0.0
        self._distance_s = FLUSH_S
        """The least time from the last flush to the next, for what there is to flush."""
        self._lowest: Mapping[str, int] = {}
        """The lowest heartbeats of the last flush."""
        self._paid_s = 0.0
        """The time by which the early flushes so far would have been made if they kept their distance."""

    def due(self, now_s: float, lowest: Mapping[str, int], *, more: bool) -> bool:
        """Return whether to flush now.

        Args:
            now_s: The monotonic time.
            lowest: By source topic the lowest heartbeat of the host's fronts.
            more: True if there is more to flush than heartbeats.
        """
        before = self._lowest
        risen = any([tick > before.get(topic, NO_TICK) for topic, tick in lowest.items()])
        self._distance_s = FLUSH_S if risen or more else LATE_FLUSH_S
        if now_s - self._flushed_s >= self._distance_s:
            return True
        return risen and self._paid_s <= now_s + (EARLY_FLUSHES - 1) * FLUSH_S

    def flushed(self, now_s: float, lowest: Mapping[str, int]) -> None:
        """Note a flush, as `due` was asked for it."""
        if now_s - self._flushed_s < FLUSH_S:
            self._paid_s = max(self._paid_s, now_s) + FLUSH_S
        self._flushed_s = now_s
        self._distance_s = FLUSH_S
        self._lowest = lowest

    def due_s(self, now_s: float) -> float:
        """Return the seconds until what `due` was asked for is flushed in any case."""
        return max(0.0, self._flushed_s + self._distance_s - now_s)
