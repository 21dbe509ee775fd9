"""A front's memory of its log: where each tick begins (R14)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.source_rows import SourceRows


class History:
    """Per tick, from the prune time on, the first message labelled with it.

    Args:
        before: The label of the message before the first, `NO_TICK` if there is none.

    Attributes:
        label: The label of the last message, `before` if there is none.
        bytes: The bytes of all messages so far.
    """

    __slots__ = ("_before_start", "_bytes", "_offsets", "_ticks", "bytes", "label")

    def __init__(self, before: int = NO_TICK) -> None:
        # Three columns: tick, offset of its first message, bytes before that message.
        self._ticks: list[int] = []
        self._offsets: list[int] = []
        self._bytes: list[int] = []
        self._before_start = before
        self.label = before
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._ticks)

    def add(self, rows: SourceRows) -> None:
        """Remember labelled messages that follow the last ones, at least one; O(ticks log n)."""
        ticks = rows.ticks
        first, last = ticks[0], ticks[-1]
        # A label equal to `before` of an empty history still begins there: what came earlier is not remembered.
        if first != self.label or not self._ticks:
            self._begin(first, rows.offsets[0], self.bytes)
        tick = first
        while tick != last:
            index = bisect_right(ticks, tick)
            tick = ticks[index]
            self._begin(tick, rows.offsets[index], self.bytes + rows.ends()[index - 1])
        self.label = last
        self.bytes += rows.size

    def start_at(self, tick: int) -> tuple[int, int] | None:
        """Return the offset of the first message labelled `tick` or later, and the label before it; None if none is.

        `tick` is at or above what was pruned; O(log ticks).
        """
        index = bisect_left(self._ticks, tick)
        if index == len(self._ticks):
            return None
        return self._offsets[index], self._ticks[index - 1] if index else self._before_start

    def bytes_below(self, tick: int) -> int:
        """Return the bytes of the messages labelled below `tick`; O(log ticks)."""
        ticks = self._ticks
        if not ticks or ticks[-1] < tick:
            return self.bytes
        return self._bytes[bisect_left(ticks, tick)]

    def prune(self, tick: int) -> None:
        """Forget the ticks below `tick`."""
        ticks = self._ticks
        if not ticks or ticks[0] >= tick:
            return
        index = bisect_left(ticks, tick)
        self._before_start = ticks[index - 1]
        del ticks[:index], self._offsets[:index], self._bytes[:index]

    def _begin(self, tick: int, offset: int, before_bytes: int) -> None:
        self._ticks.append(tick)
        self._offsets.append(offset)
        self._bytes.append(before_bytes)
