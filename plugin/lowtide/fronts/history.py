"""What a front remembers of its log: where each tick begins (R14)."""

from __future__ import annotations

import numpy as np

from lowtide.fronts.floors import LAST_TICK, NO_TICK, Int64s

__all__ = ["History"]

_FIRST_ROWS = 256


class History:
    """Per tick, from the prune time on, the first message labelled with it; 24 bytes per tick that occurs.

    Args:
        before: The label of the message before the first, `NO_TICK` if there is none.

    Attributes:
        label: The label of the last message, `before` if there is none.
        bytes: How many bytes all messages so far have had.
    """

    def __init__(self, before: int = NO_TICK) -> None:
        # Rows: tick, offset of its first message, bytes before that message. Columns _start to _end are in use.
        self._table = np.empty((3, _FIRST_ROWS), np.int64)
        self._start = self._end = 0
        self._before_start = before
        self.label = before
        self.bytes = 0

    def __len__(self) -> int:
        return self._end - self._start

    def add(self, ticks: Int64s, offsets: Int64s, ends: Int64s) -> None:
        """Remember messages that follow the last ones; O(n) in numpy.

        Args:
            ticks: int64[n], their labels, ascending, n >= 1.
            offsets: int64[n].
            ends: int64[n], bytes of these messages up to and including each.
        """
        changed = ticks[1:] != ticks[:-1]
        places = np.flatnonzero(changed) + 1
        # A label equal to `before` of an empty history still begins there: what came earlier is not remembered.
        if len(self) == 0 or int(ticks[0]) != self.label:
            places = np.concatenate([[0], places])
        n = len(places)
        if n:
            self._make_room(n)
            rows = self._table[:, self._end : self._end + n]
            rows[0] = ticks[places]
            rows[1] = offsets[places]
            rows[2] = self.bytes + np.where(places > 0, ends[places - 1], 0)
            self._end += n
        self.label = int(ticks[-1])
        self.bytes += int(ends[-1])

    def start_at(self, tick: int) -> tuple[int, int] | None:
        """Offset of the first message labelled `tick` or later, and the label before it; None if there is none.

        `tick` is at or above what was pruned; O(log ticks).
        """
        place = self._place(tick)
        if place == self._end:
            return None
        before = self._before_start if place == self._start else int(self._table[0, place - 1])
        return int(self._table[1, place]), before

    def bytes_below(self, tick: int) -> int:
        """How many bytes the messages labelled below `tick` have had; O(log ticks)."""
        place = self._place(tick)
        return self.bytes if place == self._end else int(self._table[2, place])

    def prune(self, tick: int) -> None:
        """Forget the ticks below `tick`."""
        place = self._place(tick)
        if place > self._start:
            self._before_start = int(self._table[0, place - 1])
            self._start = place

    def _place(self, tick: int) -> int:
        if tick > LAST_TICK:
            return self._end
        return self._start + int(np.searchsorted(self._table[0, self._start : self._end], tick))

    def _make_room(self, n: int) -> None:
        """Have room for n more columns: move those in use to the front of a table at least twice as wide as needed."""
        if self._end + n <= self._table.shape[1]:
            return
        used = len(self)
        table = np.empty((3, max(_FIRST_ROWS, 2 * (used + n))), np.int64)
        table[:, :used] = self._table[:, self._start : self._end]
        self._table, self._start, self._end = table, 0, used
