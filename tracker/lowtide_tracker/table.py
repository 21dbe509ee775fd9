"""The ack table: for each segment and tick the XOR of all values folded there."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from lowtide_tracker.errors import TableFull, TimeWentBack, UnknownSegment
from lowtide_tracker.fields import Ack

INT64_MIN = -(1 << 63)


class Table:
    """Per segment the 64-bit sums of its ticks, from its min time on, and a heap of these ticks.

    Its limits are exact. A tick in ``[min time, min time + capacity)`` is accepted; the one at ``min time + capacity``
    is ``TableFull``, even if the table is empty, and one below min time is ``TimeWentBack``. A flush has 1 to 10 acks
    mostly, so these are plain dicts and lists: about half a microsecond per ack, checked, applied and searched.

    Args:
        segments: the segments, in any order.
        capacity_ticks: ticks per segment, at least 1; some 150 bytes of memory for each that had an ack.
        start: the min time that all segments begin with.
    """

    def __init__(self, segments: Sequence[int], capacity_ticks: int, start: int) -> None:
        if capacity_ticks < 1:
            raise ValueError(f"table_capacity_ticks is {capacity_ticks}; it must be at least 1")
        self.segments = tuple(segments)
        self.capacity_ticks = capacity_ticks
        self._min = dict.fromkeys(segments, start)
        self._sums: dict[int, dict[int, int]] = {segment: {} for segment in segments}
        """Per segment: tick -> sum. One of zero stays until `first_open` has come to its tick."""
        self._ticks: dict[int, list[int]] = {segment: [] for segment in segments}
        """Per segment: the heap of the ticks in ``_sums``, each once."""

    def min_time(self, segment: int) -> int:
        """The first tick that the segment accepts."""
        return self._min[self._known(segment)]

    def admit(self, acks: Iterable[Ack]) -> None:
        """Check a flush's acks, changing nothing, before they go to `apply`.

        Raises:
            UnknownSegment: there is no such segment.
            TimeWentBack: a tick is below its segment's min time.
            TableFull: a tick is at or beyond its segment's min time + capacity.
        """
        min_times, capacity = self._min, self.capacity_ticks
        for segment, tick, _ in acks:
            base = min_times.get(segment)
            if base is None:
                raise UnknownSegment(segment, self.segments)
            if tick < base:
                raise TimeWentBack(segment, tick, base)
            if tick - base >= capacity:
                raise TableFull(segment, tick, base, capacity)

    def apply(self, acks: Iterable[Ack]) -> None:
        """XOR values that `admit` has let in. O(acks x log ticks)."""
        for segment, tick, value in acks:
            sums = self._sums[segment]
            before = sums.get(tick)
            if before is None:
                sums[tick] = value
                heappush(self._ticks[segment], tick)
            else:
                sums[tick] = before ^ value

    def is_open(self, segment: int, tick: int) -> bool:
        """Return whether the sum at a tick is non-zero."""
        return self._sums[self._known(segment)].get(tick, 0) != 0

    def first_open(self, segment: int, limit: int) -> int:
        """The first tick from min time on whose sum is non-zero, at most ``limit``: what min time may become.

        Each tick that is closed is passed once: O(log ticks) per ack that has come.
        """
        self._known(segment)
        sums, ticks = self._sums[segment], self._ticks[segment]
        while ticks and ticks[0] < limit:
            if sums[ticks[0]]:
                return ticks[0]
            del sums[heappop(ticks)]
        return limit

    def kept_ticks(self) -> Iterator[int]:
        """The ticks of all segments that a sum is kept for."""
        for sums in self._sums.values():
            yield from sums

    def advance(self, segment: int, min_time: int) -> None:
        """Move a segment's min time up to a tick that `first_open` allowed."""
        self._min[self._known(segment)] = min_time

    def check(self) -> None:
        """Invariant: what is open lies within the table, and the search will come to it."""
        for segment, sums in self._sums.items():
            base, ticks = self._min[segment], self._ticks[segment]
            assert sorted(ticks) == sorted(sums), f"segment {segment}: the heap has other ticks than the sums"
            assert all(ticks[(at - 1) // 2] <= ticks[at] for at in range(1, len(ticks))), f"segment {segment}: no heap"
            for tick in sums:
                assert base <= tick < base + self.capacity_ticks, f"segment {segment}: tick {tick} is out of the table"

    def _known(self, segment: int) -> int:
        if segment not in self._min:
            raise UnknownSegment(segment, self.segments)
        return segment
