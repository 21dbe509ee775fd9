"""The ack table: for each segment and tick the XOR of all values folded there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide_tracker.errors import TableFull, TimeWentBack, UnknownSegment

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
FIRST_CHUNK = 256
LAST_CHUNK = 1 << 16


class Table:
    """A ring of 64-bit sums per segment, from the segment's min time on.

    Its limits are exact. A tick in ``[min time, min time + capacity)`` has a slot of its own; the one at
    ``min time + capacity`` is ``TableFull``, even if the table is empty, and one below min time is ``TimeWentBack``.
    Never do two ticks share a slot. Slots below min time are zero, so nothing has to be cleared when it moves.

    Args:
        segments: the segments, in any order; each has a row.
        capacity_ticks: slots per segment, at least 1; memory is ``8 * len(segments) * capacity_ticks`` bytes.
        start: the min time that all segments begin with.
    """

    def __init__(self, segments: Sequence[int], capacity_ticks: int, start: int) -> None:
        if capacity_ticks < 1:
            raise ValueError(f"table_capacity_ticks is {capacity_ticks}; it must be at least 1")
        self.segments = tuple(segments)
        self.capacity_ticks = capacity_ticks
        self._sums: NDArray[np.uint64] = np.zeros((len(segments), capacity_ticks), dtype=np.uint64)
        self._flat = self._sums.reshape(-1)
        # Row of each segment; -1 where there is none.
        self._rows: NDArray[np.intp] = np.full(1 << 16, -1, dtype=np.intp)
        self._rows[list(segments)] = np.arange(len(segments))
        self._min: NDArray[np.int64] = np.full(len(segments), start, dtype=np.int64)
        # Largest tick that ever had an ack, per row: beyond it there is nothing to search.
        self._highest: NDArray[np.int64] = np.full(len(segments), INT64_MIN, dtype=np.int64)

    def min_time(self, segment: int) -> int:
        """The first tick that the segment's row can hold."""
        return int(self._min[self._row(segment)])

    def locate(self, segments: NDArray[np.uint16], ticks: NDArray[np.int64]) -> NDArray[np.intp]:
        """Checks a flush's acks, changing nothing, and returns their slots for `apply`. O(entries).

        Raises:
            UnknownSegment: there is no such segment.
            TimeWentBack: a tick is below its segment's min time.
            TableFull: a tick is at or beyond its segment's min time + capacity.
        """
        rows = self._rows[segments]
        floor = self._min[rows]
        # Unsigned, so that a difference beyond int64 is a large number. At the type's very edges it wraps into the
        # table's width again, which only the comparison of the ticks themselves tells.
        ahead = (ticks - floor).view(np.uint64)
        if rows.size and (rows.min() < 0 or ahead.max() >= self.capacity_ticks or (ticks < floor).any()):
            self._refuse(segments, ticks, rows)
        return rows * self.capacity_ticks + ticks % self.capacity_ticks

    def apply(
        self,
        slots: NDArray[np.intp],
        segments: NDArray[np.uint16],
        ticks: NDArray[np.int64],
        values: NDArray[np.uint64],
    ) -> None:
        """XORs values into the slots that `locate` gave for these acks. O(entries)."""
        np.bitwise_xor.at(self._flat, slots, values)
        np.maximum.at(self._highest, self._rows[segments], ticks)

    def xor(self, segments: NDArray[np.uint16], ticks: NDArray[np.int64], values: NDArray[np.uint64]) -> None:
        """`locate` and `apply`: all of the acks, or an error and none of them."""
        self.apply(self.locate(segments, ticks), segments, ticks, values)

    def is_open(self, segment: int, tick: int) -> bool:
        """Whether the sum at a tick within the table is non-zero."""
        return bool(self._sums[self._row(segment), tick % self.capacity_ticks])

    def first_open(self, segment: int, limit: int) -> int:
        """The first tick from min time on whose sum is non-zero, at most ``limit``: what min time may become.

        Searches no further than the largest tick that ever had an ack: an empty table jumps to its limit in O(1).
        """
        row = self._row(segment)
        at, end = int(self._min[row]), min(limit, int(self._highest[row]) + 1)
        sums, size = self._sums[row], FIRST_CHUNK
        while at < end:
            slot = at % self.capacity_ticks
            chunk = sums[slot : slot + min(size, end - at)]  # The ring's end may cut it short.
            found = chunk != 0
            place = int(found.argmax())
            if found[place]:
                return at + place
            at += chunk.size
            size = min(size * 4, LAST_CHUNK)
        return limit

    def advance(self, segment: int, min_time: int) -> None:
        """Moves a segment's min time up to a tick that `first_open` allowed."""
        self._min[self._row(segment)] = min_time

    def check(self) -> None:
        """Invariant: nothing is open beyond the largest tick that had an ack, nor beyond the table."""
        for row, segment in enumerate(self.segments):
            base, highest = int(self._min[row]), int(self._highest[row])
            for slot in np.flatnonzero(self._sums[row]):
                tick = base + (int(slot) - base) % self.capacity_ticks
                assert tick <= highest, f"segment {segment}: tick {tick} is open, but no ack beyond {highest} ever came"

    def _row(self, segment: int) -> int:
        row = int(self._rows[segment]) if 0 <= segment < self._rows.size else -1
        if row < 0:
            raise UnknownSegment(segment, self.segments)
        return row

    def _refuse(self, segments: NDArray[np.uint16], ticks: NDArray[np.int64], rows: NDArray[np.intp]) -> None:
        """Raises what is wrong with the first bad ack."""
        for segment, tick, row in zip(segments.tolist(), ticks.tolist(), rows.tolist(), strict=True):
            if row < 0:
                raise UnknownSegment(segment, self.segments)
            base = int(self._min[row])
            if tick < base:
                raise TimeWentBack(segment, tick, base)
            if tick - base >= self.capacity_ticks:
                raise TableFull(segment, tick, base, self.capacity_ticks)
