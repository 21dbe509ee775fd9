"""Floors: the decisions about labels that the log alone does not tell (R1, R2)."""

from collections.abc import Iterable

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
    """Floors in the order they came, one per (front, offset, cap): the newest tick, which is the largest.

    A front that is idle raises its floor again and again at one offset; only the last counts. Grows with the offsets
    that got a floor, until `forget` is told of a commit.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, bool], Floor] = {}
        self._new: dict[tuple[int, int, bool], Floor] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, floors: Iterable[Floor]) -> None:
        """Keeps the floors that say more than what is known."""
        for floor in floors:
            key = (floor.front, floor.offset, floor.cap)
            known = self._kept.get(key)
            if known is None or known.tick < floor.tick:
                self._kept[key] = self._new[key] = floor

    @property
    def has_new(self) -> bool:
        """Whether `take_new` would return some."""
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
        return tuple(self._kept.values())

    def forget(self, front: int, before_offset: int) -> None:
        """Drops the floors of a front below an offset: a committed manifest holds the label before that offset."""
        gone = [key for key in self._kept if key[0] == front and key[1] < before_offset]
        for key in gone:
            del self._kept[key]
            self._new.pop(key, None)
