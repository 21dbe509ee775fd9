"""Keys of a step in memory that may leave it: those at rest, in the order in which they go, and which are clean."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class AtRest(Generic[Item]):
    """Keys, or windows of keys, that may leave memory or have come back to it.

    One is *at rest* while nothing comes that could change it, or what it was. It is *clean* if the store, with its
    buffer, has it as it is: then it may go without being written.

    Args:
        stamp: Gives the number of what comes to rest: of two the smaller one has been there for longer.

    Attributes:
        stays: Whether nothing may leave for now.
        hits: The number of those that batches asked for and that were in memory.
        misses: Of those that were not.
        evicted: The number of those that have left memory.
    """

    __slots__ = ("_resting", "_stamp", "_stored", "evicted", "hits", "misses", "stays")

    def __init__(self, stamp: Callable[[], int]) -> None:
        self._stamp = stamp
        self._stored: dict[Item, bool] = {}
        """By what is in memory and in the store: whether it is clean."""
        self._resting: OrderedDict[Item, int] = OrderedDict()
        """What is at rest with its stamp, in the order in which it goes."""
        self.stays = False
        self.hits = 0
        self.misses = 0
        self.evicted = 0

    @property
    def oldest(self) -> int | None:
        """The stamp of what goes next; None if nothing may."""
        if not self.stays:
            for stamp in self._resting.values():
                return stamp
        return None

    def came(self, item: Item) -> None:
        """It has come from the store."""
        self._stored[item] = True
        self._resting[item] = self._stamp()

    def changes(self, item: Item) -> None:
        """It is not at rest any more, and not clean."""
        self._resting.pop(item, None)
        if item in self._stored:
            self._stored[item] = False

    def rests(self, item: Item) -> None:
        """It may leave from now on; of what is at rest it goes last."""
        self._resting[item] = self._stamp()
        self._resting.move_to_end(item)

    def use(self, items: Iterable[Item]) -> None:
        """Have what is looked at without being changed go later, if it is at rest."""
        for item in items:
            if item in self._resting:
                self.rests(item)

    def leave(self) -> tuple[Item, bool | None]:
        """Take what has been at rest for longest, of which there is one; whether it is clean, None if not stored."""
        item, _ = self._resting.popitem(last=False)
        self.evicted += 1
        return item, self._stored.pop(item, None)

    def gone(self, item: Item) -> bool:
        """It is no more; return whether the store has it, which is to be deleted then."""
        self._resting.pop(item, None)
        return self._stored.pop(item, None) is not None
