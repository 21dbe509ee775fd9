"""Records that wait until nothing before them can come any more: what a barrier and an ordered grouping share."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from lowtide.errors import LifeEnded, TimeWentBack
from lowtide.operators.batch import Batch
from lowtide.operators.meta import Indices
from lowtide.operators.order import OrderKey, Packed, in_order, pack

_FIRST_TICK = -(1 << 63)


class UnmatchedTombstone(LifeEnded):
    """Make the functions of the named flow deterministic: one gave something else when it was called again."""


class _Held:
    """A batch of which some records may have been released.

    Attributes:
        batch: All its records; they are copied once, when they are released.
        order: int64[n], the records by tick, in the order they came; None while all of them are held.
        ticks: int64[n], their ticks in that order.
        start: Those before this place of `order` have been released.
    """

    __slots__ = ("batch", "order", "start", "ticks")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.order: Indices | None = None
        self.ticks = batch.meta.tick
        self.start = 0

    def cut(self, tick: int) -> Batch:
        """Let go of the records below `tick`; O(their number), besides one sort when the first ones leave others."""
        if self.order is None:
            if bool((self.ticks < tick).all()):
                self.start = len(self.ticks)
                return self.batch
            self.order = np.argsort(self.ticks, kind="stable")
            self.ticks = self.ticks[self.order]
        start, self.start = self.start, int(np.searchsorted(self.ticks, tick))
        return self.batch.take(self.order[start : self.start])

    def first_tick(self) -> int | None:
        """The lowest tick that is left; None if all have been released. Only after a `cut`."""
        return int(self.ticks[self.start]) if self.start < len(self.ticks) else None


class Pending:
    """A hold: takes records in any order, gives those below a tick in order, without the ones taken back.

    An item and its tombstone have the same order key and come in this order; they leave no trace. What is wrong with
    that (a tombstone without its item, a second item with the same key) is found when the records are released.
    What is held for long costs nothing but memory: a release looks at the batches that have something to give.

    Args:
        place: What holds them, for errors.
        depth: The longest child path of the records.

    Attributes:
        released: Everything below this tick has been released; what comes below it later is an error.
    """

    def __init__(self, place: str, depth: int) -> None:
        self._place = place
        self._depth = depth
        # A heap of (lowest tick held, arrival, batch).
        self._held: list[tuple[int, int, _Held]] = []
        self._arrivals = 0
        self._size = 0
        self.released = _FIRST_TICK

    def __len__(self) -> int:
        return self._size

    def add(self, batch: Batch) -> None:
        """Take records; O(log batches) besides a look at their ticks.

        Raises:
            TimeWentBack: a record is below what has been released.
        """
        if len(batch) == 0:
            return
        first = int(batch.meta.tick.min())
        if first < self.released:
            raise TimeWentBack(self._place, first, self.released)
        self._arrivals += 1
        self._size += len(batch)
        heappush(self._held, (first, self._arrivals, _Held(batch)))

    def release(self, tick: int) -> Batch | None:
        """Give all records below `tick` in order, None if there are none; O(n log n) for those.

        Raises:
            UnmatchedTombstone: see the class.
        """
        self.released = max(self.released, tick)
        below: list[tuple[int, Batch]] = []
        left: list[tuple[int, int, _Held]] = []
        while self._held and self._held[0][0] < tick:
            _, arrival, held = heappop(self._held)
            below.append((arrival, held.cut(tick)))
            first = held.first_tick()
            if first is not None:
                left.append((first, arrival, held))
        for entry in left:
            heappush(self._held, entry)
        if not below:
            return None
        below.sort(key=_arrival)
        batch = Batch.concat([part for _, part in below])
        self._size -= len(batch)
        return self._settle(batch)

    def _settle(self, batch: Batch) -> Batch | None:
        packed = pack(batch.meta, self._depth)
        order = in_order(packed)
        if order is not None:
            batch, packed = batch.take(order), packed[order]
        kept = self._survivors(batch, packed)
        if kept is not None:
            batch = batch.take(np.flatnonzero(kept))
        return batch if len(batch) else None

    def _survivors(self, batch: Batch, packed: Packed) -> npt.NDArray[np.bool_] | None:
        """Which records of a sorted batch are valid; None for all. Equal keys stand in the order they came."""
        n = len(packed)
        again = np.empty(n, np.bool_)
        again[0] = False
        np.equal(packed[1:], packed[:-1], out=again[1:])
        tombstone = batch.meta.tombstone
        if not again.any() and not tombstone.any():
            return None
        # Within a run of equal keys items and tombstones take turns, an item first: item i of the run is a tombstone
        # if i is odd. A run of odd length leaves its last item.
        places = np.arange(n)
        starts = np.maximum.accumulate(np.where(again, 0, places))
        odd = ((places - starts) & 1).astype(np.bool_)
        wrong = np.flatnonzero(odd != tombstone)
        if len(wrong):
            index = int(wrong[0])
            raise unmatched(self._place, OrderKey.at(batch.meta, index), bool(tombstone[index]))
        last = np.append(~again[1:], True)
        survivors: npt.NDArray[np.bool_] = last & ~tombstone
        return survivors


_arrival: Callable[[tuple[int, Batch]], int] = itemgetter(0)


def unmatched(place: str, key: OrderKey, tombstone: bool) -> UnmatchedTombstone:
    """The error for a tombstone without its item, or a second item with the same key."""
    what = "a tombstone came without its item" if tombstone else "a second item came with the same order key"
    return UnmatchedTombstone(
        f"{what} at {place}: tick {key.tick}, front {key.front}, offset {key.sequence}, child {list(key.child)}",
        way_out="some function on the way gave another result when it was called again with the same record: make it "
        "deterministic (no clock, no random numbers, no order of sets), then start the job again",
    )
