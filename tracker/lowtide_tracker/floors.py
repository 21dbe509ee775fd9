"""Floors: the decisions about labels that the log alone does not tell (R1, R2)."""

from collections.abc import Iterable
from itertools import islice, takewhile

from lowtide_tracker.fields import Front, Offset, Packed, Tick


class Floor(Packed, frozen=True, order=True):
    """From ``offset`` on, ``front`` labels nothing below ``tick``.

    With ``cap`` it speaks of one record: the one at this very offset has a timestamp that is not believed, and counts
    as ``tick`` instead.
    """

    front: Front
    offset: Offset
    tick: Tick
    cap: bool = False


class Floors:
    """Floors of any number of fronts, one per (front, offset, cap): the newest tick, which is the largest.

    A front that is idle raises its floor again and again at one offset; only the last counts. Grows with the offsets
    that got a floor, until `forget` is called after a commit.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, bool], dict[int, Floor]] = {}
        """Per (front, cap) by offset, in the order they came: a front's floors come with ascending offsets."""
        self._new: dict[tuple[int, int, bool], Floor] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def add(self, floors: Iterable[Floor]) -> tuple[Floor, ...]:
        """Keep the floors that say more than the known ones, and return them."""
        added = []
        for floor in floors:
            of_front = self._kept.setdefault((floor.front, floor.cap), {})
            known = of_front.get(floor.offset)
            if known is None or known.tick < floor.tick:
                of_front[floor.offset] = self._new[floor.front, floor.offset, floor.cap] = floor
                added.append(floor)
        return tuple(added)

    @property
    def has_new(self) -> bool:
        """True if `take_new` would return some."""
        return bool(self._new)

    def take_new(self) -> tuple[Floor, ...]:
        """The floors that came, or rose, since this was asked before."""
        if not self._new:
            return ()
        taken = tuple(self._new.values())
        self._new.clear()
        return taken

    def all(self) -> tuple[Floor, ...]:
        """Every floor kept, new or not."""
        return tuple(floor for of_front in self._kept.values() for floor in of_front.values())

    def forget(self, front: int, before_offset: int, at_most: int | None = None) -> bool:
        """Drop floors of a front below an offset: a committed manifest holds the label before that offset.

        Args:
            front: the front.
            before_offset: where the manifest begins to read it again.
            at_most: how many of them are dropped by this call, of each kind; all by default. O(dropped).

        Returns:
            Whether more are left to be dropped by further calls.
        """
        more = False
        for cap in (False, True):
            of_front = self._kept.get((front, cap), {})
            gone = list(islice(takewhile(before_offset.__gt__, of_front), at_most))
            for offset in gone:
                del of_front[offset]
                self._new.pop((front, offset, cap), None)
            more = more or len(gone) == at_most
        return more
