"""The pace of a host's flushes to the tracker: at once where min time may move, else with what comes later."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.core.fronts.floors import NO_TICK

EARLY_FLUSHES = 4
"""The number of early flushes that may follow each other at once; over time there is one in a window."""
LATE_FLUSH_S = 0.02
"""The time until a flush of heartbeats that nobody waits for, unless the window is longer."""


class FlushPace:
    """Paces the flushes of one host.

    Min time goes no further than the lowest heartbeat of a source's fronts, so only a flush that raises the lowest
    one of this host's may be the one that all wait for. It is early: it does not keep the distance. Where fronts follow
    their log the lowest rises once a tick at most, so early flushes are few; while they work off a backlog it rises
    with every turn, and then early flushes are as far apart as others. What other fronts promise can wait until then.

    Args:
        window_s: Least time between two flushes, but for early ones: what others wait for is late by no more.

    Example:
        >>> pace = FlushPace(0.002)
        >>> pace.flushed(10.0, {"clicks": 5})
        >>> [pace.due(10.001, {"clicks": lowest}, more=True) for lowest in (5, 6)]
        [False, True]
        >>> [pace.due(10.003, {"clicks": 5}, more=more) for more in (True, False)]
        [True, False]
    """

    __slots__ = ("_flushed_s", "_lowest", "_paid_s", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._flushed_s = 0.0
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
        if self.due_s(now_s, lowest, more=more) <= 0.0:
            return True
        return self._risen(lowest) and self._paid_s <= now_s + (EARLY_FLUSHES - 1) * self._window_s

    def flushed(self, now_s: float, lowest: Mapping[str, int]) -> None:
        """Note a flush."""
        if now_s - self._flushed_s < self._window_s:
            self._paid_s = max(self._paid_s, now_s) + self._window_s
        self._flushed_s = now_s
        self._lowest = lowest

    def due_s(self, now_s: float, lowest: Mapping[str, int], *, more: bool) -> float:
        """Return the seconds until a flush is due that is not early; arguments as of `due`."""
        due_soon = more or self._risen(lowest)
        distance_s = self._window_s if due_soon else max(self._window_s, LATE_FLUSH_S)
        return max(0.0, self._flushed_s + distance_s - now_s)

    def _risen(self, lowest: Mapping[str, int]) -> bool:
        """Return whether a lowest heartbeat is higher than in the last flush."""
        before = self._lowest
        return any([tick > before.get(topic, NO_TICK) for topic, tick in lowest.items()])
