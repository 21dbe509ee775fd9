"""The pace of a host's flushes to the tracker: soon where min time may move, else with what comes later."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.core.fronts.floors import NO_TICK

LATE_FLUSH_S = 0.02
"""The time until a flush of heartbeats that nobody waits for, unless the window is longer."""


class FlushPace:
    """Paces the flushes of one host.

    Min time goes no further than the lowest heartbeat of a source's fronts. What the others promise can wait: it goes
    with the next flush that has more to say.

    Args:
        window_s: Least time between two flushes: what others wait for is late by no more.

    Example:
        >>> pace = FlushPace(0.002)
        >>> pace.flushed(10.0, {"clicks": 5})
        >>> [pace.due_s(10.0, {"clicks": lowest}, more=False) for lowest in (5, 6)]
        [0.02, 0.002]
        >>> pace.due_s(10.003, {"clicks": 5}, more=True)
        0.0
    """

    __slots__ = ("_flushed_s", "_lowest", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._flushed_s = 0.0
        self._lowest: Mapping[str, int] = {}
        """The lowest heartbeats of the last flush."""

    def flushed(self, now_s: float, lowest: Mapping[str, int]) -> None:
        """Note a flush, with the lowest heartbeats that it carries."""
        self._flushed_s, self._lowest = now_s, lowest

    def due_s(self, now_s: float, lowest: Mapping[str, int], *, more: bool) -> float:
        """Return the seconds until a flush is due.

        Args:
            now_s: The monotonic time.
            lowest: By source topic the lowest heartbeat of the host's fronts.
            more: True if there is more to flush than heartbeats.
        """
        distance_s = self._window_s if more or self._risen(lowest) else max(self._window_s, LATE_FLUSH_S)
        return max(0.0, self._flushed_s - now_s + distance_s)

    def _risen(self, lowest: Mapping[str, int]) -> bool:
        """Return whether a lowest heartbeat is higher than in the last flush."""
        before = self._lowest
        return any([tick > before.get(topic, NO_TICK) for topic, tick in lowest.items()])
