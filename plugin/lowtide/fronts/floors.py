"""Floors by front and offset: what is known about labels besides the log (R1, R2)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from lowtide_tracker import Floor

__all__ = ["LAST_TICK", "NO_TICK", "Floors"]

NO_TICK = -(1 << 63)
"""Below every label: what stands where there is no floor, or no record before."""

LAST_TICK = (1 << 63) - 1
"""The highest tick there can be, and the last ms."""


class Floors:
    """Floors of any number of fronts: per front a step function of the offset, and caps at single offsets.

    What is kept depends on what was added alone, neither on its order nor on how often: a plain floor that another
    one of its front covers (from an offset no larger, a tick no smaller) is dropped, of two caps of one record the
    larger tick stays. So a union is commutative and idempotent, and `list(floors)` is the same for equal floors.

    Example:
        >>> floors = Floors([Floor(0, 7, 100), Floor(0, 9, 90), Floor(0, 12, 300), Floor(0, 8, 55, cap=True)])
        >>> [floors.tick_at(0, offset) for offset in (6, 7, 9, 12)] == [NO_TICK, 100, 100, 300]
        True
    """

    def __init__(self, floors: Iterable[Floor] = ()) -> None:
        # (front, cap) -> offsets ascending, and their ticks; ticks of plain floors ascend too.
        self._steps: dict[tuple[int, bool], tuple[list[int], list[int]]] = {}
        # Every floor kept with the number of the change that brought it; the latest last.
        self._changes: dict[Floor, int] = {}
        self._version = 0
        self.merge(floors)

    @property
    def version(self) -> int:
        """How many changes there have been: a place to ask `since` from."""
        return self._version

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Floor]:
        """All floors, by front, offset and tick."""
        return iter(sorted(self._changes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Floors) and self._changes.keys() == other._changes.keys()

    __hash__ = None  # type: ignore[assignment]  # floors change

    def merge(self, floors: Iterable[Floor]) -> None:
        """Add floors; see `add`."""
        for floor in floors:
            self.add(floor)

    def add(self, floor: Floor) -> bool:
        """Add one floor; return whether it says anything new. O(floors of the front) at worst, O(log) at the end."""
        offsets, ticks = self._steps.setdefault((floor.front, floor.cap), ([], []))
        place = bisect_left(offsets, floor.offset)
        same = place < len(offsets) and offsets[place] == floor.offset
        if floor.cap:
            if same and ticks[place] >= floor.tick:
                return False
            end = place + same
        else:
            if (same and ticks[place] >= floor.tick) or (place and ticks[place - 1] >= floor.tick):
                return False
            end = bisect_right(ticks, floor.tick, place)
        for covered in range(place, end):
            del self._changes[Floor(floor.front, offsets[covered], ticks[covered], floor.cap)]
        offsets[place:end] = [floor.offset]
        ticks[place:end] = [floor.tick]
        self._version += 1
        self._changes[floor] = self._version
        return True

    def since(self, version: int) -> tuple[Floor, ...]:
        """The floors that changed after this version, in the order they came; O(their number)."""
        found = []
        for floor, changed in reversed(self._changes.items()):
            if changed <= version:
                break
            found.append(floor)
        return tuple(reversed(found))

    def of_front(self, front: int) -> Iterator[Floor]:
        """A front's floors by offset, plain ones first."""
        for cap in (False, True):
            offsets, ticks = self._steps.get((front, cap), ([], []))
            for offset, tick in zip(offsets, ticks, strict=True):
                yield Floor(front, offset, tick, cap)

    def tick_at(self, front: int, offset: int) -> int:
        """The largest plain floor that holds at one offset, `NO_TICK` if there is none; O(log floors)."""
        offsets, ticks = self._steps.get((front, False), ([], []))
        place = bisect_right(offsets, offset)
        return ticks[place - 1] if place else NO_TICK

    def steps(self, front: int, first: int, last: int, *, cap: bool = False) -> tuple[list[int], list[int]]:
        """Offsets and ticks of the floors (or the caps) that start at `first` to `last`; O(log floors + found)."""
        offsets, ticks = self._steps.get((front, cap), ([], []))
        low, high = bisect_left(offsets, first), bisect_right(offsets, last)
        return offsets[low:high], ticks[low:high]

    def cut(self, front: int, offset: int) -> None:
        """Drop what says nothing about offsets from `offset` on: caps below it, and floors that others cover there.

        No label from `offset` on changes. The floor that holds at `offset` stays, even if it started below: there may
        have been no record between the two, so that no label before `offset` tells of it.
        """
        for cap in (False, True):
            offsets, ticks = self._steps.get((front, cap), ([], []))
            end = bisect_left(offsets, offset) if cap else max(0, bisect_right(offsets, offset) - 1)
            for gone in range(end):
                del self._changes[Floor(front, offsets[gone], ticks[gone], cap)]
            del offsets[:end], ticks[:end]

    def largest_tick(self) -> int:
        """The largest tick of all floors and caps, `NO_TICK` if there are none; O(fronts + caps)."""
        return max((max(ticks) for _, ticks in self._steps.values() if ticks), default=NO_TICK)

    def check(self) -> None:
        """Invariant: offsets and plain ticks ascend, and both sides hold the same floors."""
        found: set[Floor] = set()
        for (front, cap), (offsets, ticks) in self._steps.items():
            assert all(low < high for low, high in pairwise(offsets))
            assert cap or all(low < high for low, high in pairwise(ticks))
            found.update(Floor(front, offset, tick, cap) for offset, tick in zip(offsets, ticks, strict=True))
        assert found == self._changes.keys(), "each floor has one change"
