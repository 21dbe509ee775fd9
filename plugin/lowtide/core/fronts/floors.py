"""Floors by front and offset: the facts about labels that are not in the log (R1, R2)."""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile

import numpy as np

from lowtide.errors import LifeEnded
from lowtide_tracker import Floor

NO_TICK = -(1 << 63)
"""A tick below every label, for a missing floor or record."""

LAST_TICK = (1 << 63) - 1
"""The highest tick there can be, and the last ms."""


class Steps:
    """Floors of any number of fronts: per front a step function of the offset, and caps at single offsets.

    The content depends only on what was added, not on the order or repetition: a plain floor that another one of its
    front covers (from an offset no larger, a tick no smaller) is dropped, of two caps of one record the larger tick
    stays. So a union is commutative and idempotent. 16 bytes a floor.

    Example:
        >>> floors = Steps([Floor(0, 7, 100), Floor(0, 9, 90), Floor(0, 12, 300), Floor(0, 8, 55, cap=True)])
        >>> [floors.tick_at(0, offset) for offset in (6, 7, 9, 12)] == [NO_TICK, 100, 100, 300]
        True
    """

    def __init__(self, floors: Iterable[Floor] = ()) -> None:
        # (front, cap) -> offsets ascending, and their ticks; ticks of plain floors ascend too.
        self._steps: dict[tuple[int, bool], tuple[list[int], list[int]]] = {}
        self.merge(floors)

    def __len__(self) -> int:
        return sum(len(offsets) for offsets, _ in self._steps.values())

    def __iter__(self) -> Iterator[Floor]:
        """Yield all floors, by front, offset and tick."""
        for front in sorted(self.fronts):
            caps = bool(self._steps.get((front, True), ((), ()))[0])
            yield from sorted(self.of_front(front)) if caps else self.of_front(front)

    @property
    def fronts(self) -> set[int]:
        """Return the fronts that have or had floors."""
        return {front for front, _ in self._steps}

    def merge(self, floors: Iterable[Floor]) -> None:
        """Add floors; see `add`."""
        for floor in floors:
            self.add(floor)

    def add(self, floor: Floor) -> bool:
        """Add one floor; return whether it adds anything new. O(floors of the front) at worst, O(log) at the end."""
        steps = self._steps.get((floor.front, floor.cap))
        if steps is None:
            steps = self._steps[floor.front, floor.cap] = ([], [])
        offsets, ticks = steps
        if not offsets or (floor.offset > offsets[-1] and (floor.cap or floor.tick > ticks[-1])):
            offsets.append(floor.offset)
            ticks.append(floor.tick)
            return True
        index = bisect_left(offsets, floor.offset)
        same = index < len(offsets) and offsets[index] == floor.offset
        if floor.cap:
            if same and ticks[index] >= floor.tick:
                return False
            end = index + same
        else:
            if (same and ticks[index] >= floor.tick) or (index and ticks[index - 1] >= floor.tick):
                return False
            end = bisect_right(ticks, floor.tick, index)
        self._gone(floor.front, floor.cap, offsets[index:end], ticks[index:end])
        offsets[index:end] = [floor.offset]
        ticks[index:end] = [floor.tick]
        return True

    def of_front(self, front: int, offset: int | None = None) -> Iterator[Floor]:
        """Yield a front's floors by offset, plain ones first; given an offset, those that matter from it on."""
        for cap in (False, True):
            offsets, ticks = self._steps.get((front, cap), ([], []))
            start = 0 if offset is None else _first(offsets, offset, cap)
            for index in range(start, len(offsets)):
                yield Floor(front, offsets[index], ticks[index], cap)

    def tick_at(self, front: int, offset: int) -> int:
        """Return the largest plain floor that holds at an offset, `NO_TICK` if there is none; O(log floors)."""
        offsets, ticks = self._steps.get((front, False), ([], []))
        index = bisect_right(offsets, offset)
        return ticks[index - 1] if index else NO_TICK

    def steps(self, front: int, first: int, last: int, *, cap: bool = False) -> tuple[list[int], list[int]]:
        """Return offsets and ticks of floors (or caps) that start at `first` to `last`; O(log floors + found)."""
        offsets, ticks = self._steps.get((front, cap), ([], []))
        low, high = bisect_left(offsets, first), bisect_right(offsets, last)
        return offsets[low:high], ticks[low:high]

    def cut(self, front: int, offset: int) -> None:
        """Drop what does not matter from `offset` on: caps below it, and floors that others cover there.

        No label from `offset` on changes. The floor that holds at `offset` stays, even if it started below: there may
        have been no record between the two, so that no label before `offset` tells of it.
        """
        for cap in (False, True):
            offsets, ticks = self._steps.get((front, cap), ([], []))
            end = _first(offsets, offset, cap)
            self._gone(front, cap, offsets[:end], ticks[:end])
            del offsets[:end], ticks[:end]

    def largest_tick(self) -> int:
        """Return the largest tick of all floors and caps, `NO_TICK` if there are none; O(fronts + caps)."""
        return max((max(ticks) for _, ticks in self._steps.values() if ticks), default=NO_TICK)

    def check(self) -> None:
        """Check the invariant: offsets and plain ticks ascend."""
        for (_, cap), (offsets, ticks) in self._steps.items():
            assert all(low < high for low, high in pairwise(offsets))
            assert cap or all(low < high for low, high in pairwise(ticks))

    def _gone(self, front: int, cap: bool, offsets: Sequence[int], ticks: Sequence[int]) -> None:
        """Handle floors that are about to be dropped."""


class Floors(Steps):
    """Floors in the order of their arrival, so that the new ones can be listed."""

    def __init__(self, floors: Iterable[Floor] = ()) -> None:
        # Every floor kept with the number of the change that brought it; the latest last.
        self._changes: dict[Floor, int] = {}
        self._version = 0
        super().__init__(floors)

    @property
    def version(self) -> int:
        """The number of changes so far: an argument for `since`."""
        return self._version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Floors) and self._changes.keys() == other._changes.keys()

    __hash__ = None  # type: ignore[assignment]  # floors change

    def add(self, floor: Floor) -> bool:
        """Add as `Steps.add`."""
        if not super().add(floor):
            return False
        self._version += 1
        self._changes[floor] = self._version
        return True

    def since(self, version: int) -> tuple[Floor, ...]:
        """Return the floors that changed after this version, in the order they came; O(their number)."""
        found = []
        for floor, changed in reversed(self._changes.items()):
            if changed <= version:
                break
            found.append(floor)
        return tuple(reversed(found))

    def settle(self, version: int) -> None:
        """Drop the floors that came up to this version; O(dropped)."""
        gone = list(takewhile(lambda floor: self._changes[floor] <= version, self._changes))
        for floor in gone:
            offsets, ticks = self._steps[floor.front, floor.cap]
            index = bisect_left(offsets, floor.offset)
            del offsets[index], ticks[index], self._changes[floor]

    def check(self) -> None:
        """Check the invariants of `Steps.check`, and that both sides hold the same floors."""
        super().check()
        assert set(self) == self._changes.keys(), "each floor has one change"

    def _gone(self, front: int, cap: bool, offsets: Sequence[int], ticks: Sequence[int]) -> None:
        for offset, tick in zip(offsets, ticks, strict=True):
            del self._changes[Floor(front, offset, tick, cap)]


def _first(offsets: Sequence[int], offset: int, cap: bool) -> int:
    """Return the index of the first floor, or cap, that matters from `offset` on."""
    return bisect_left(offsets, offset) if cap else max(0, bisect_right(offsets, offset) - 1)


MAX_FLOORS = 20_000_000
"""The number of floors that a start can give to its workers: a third of the message's limit."""
_COUNTS = struct.Struct("<QQ")


def pack(floors: Iterable[Floor]) -> dict[int, bytes]:
    """Pack floors by front; 0.5 us each.

    Args:
        floors: Of any fronts, by offset within each front and kind.

    Raises:
        LifeEnded: there are more than `MAX_FLOORS`.
    """
    columns: dict[int, tuple[list[int], list[int], list[int], list[int]]] = {}
    count = 0
    for floor in floors:
        count += 1
        offsets, ticks, cap_offsets, cap_ticks = columns.setdefault(floor.front, ([], [], [], []))
        (cap_offsets if floor.cap else offsets).append(floor.offset)
        (cap_ticks if floor.cap else ticks).append(floor.tick)
    if count > MAX_FLOORS:
        raise LifeEnded(
            f"partitions have {count:,} quiet moments since the commit that the job begins from, but a start takes at "
            f"most {MAX_FLOORS:,}",
            way_out="begin from a newer commit",
        )
    return {front: _packed(*each) for front, each in columns.items()}


def unpack(front: int, packed: bytes) -> list[Floor]:
    """Unpack the floors of a front as given to `pack`, plain ones first; none from empty bytes."""
    if not packed:
        return []
    data = zlib.decompress(packed)
    plain, caps = _COUNTS.unpack_from(data)
    steps, at, columns = np.frombuffer(data, "<i8", offset=_COUNTS.size), 0, []
    for count in (plain, plain, caps, caps):
        columns.append(np.cumsum(steps[at : at + count]).tolist())
        at += count
    offsets, ticks, cap_offsets, cap_ticks = columns
    return [
        *(Floor(front, offset, tick) for offset, tick in zip(offsets, ticks, strict=True)),
        *(Floor(front, offset, tick, cap=True) for offset, tick in zip(cap_offsets, cap_ticks, strict=True)),
    ]


def _packed(offsets: list[int], ticks: list[int], cap_offsets: list[int], cap_ticks: list[int]) -> bytes:
    columns = b"".join(map(_steps, (offsets, ticks, cap_offsets, cap_ticks)))
    return zlib.compress(_COUNTS.pack(len(offsets), len(cap_offsets)) + columns, 1)


def _steps(values: Sequence[int]) -> bytes:
    """Pack the first value, then each distance to the one before, 8 bytes each; overflows wrap, both ways."""
    return np.diff(np.array(values, "<i8"), prepend=np.zeros(1, "<i8")).tobytes()
