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
from lowtide.operators.order import FIRST_TICK, OrderKey, in_order, pack


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
        self.released = FIRST_TICK

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
        batch = self._below(tick)
        if batch is None:
            return None
        chosen = self._valid(batch)
        if chosen is None:
            return batch
        return batch.take(chosen) if len(chosen) else None

    def release_parts(self, tick: int, target_of_unit: npt.NDArray[np.int32]) -> list[tuple[int, Batch]]:
        """The same, parted by `target_of_unit[unit]`, each part in order; targets ascend; each record is copied once.

        Raises:
            UnmatchedTombstone: see the class.
        """
        batch = self._below(tick)
        if batch is None:
            return []
        assert batch.meta.unit is not None, "only keyed records have targets"
        chosen = self._valid(batch)
        targets = target_of_unit[batch.meta.unit if chosen is None else batch.meta.unit[chosen]]
        if len(targets) == 0:
            return []
        if bool((targets == targets[0]).all()):
            return [(int(targets[0]), batch if chosen is None else batch.take(chosen))]
        by_target = np.argsort(targets, kind="stable")
        targets, chosen = targets[by_target], by_target if chosen is None else chosen[by_target]
        ends = [*(np.flatnonzero(targets[1:] != targets[:-1]) + 1).tolist(), len(targets)]
        starts = [0, *ends[:-1]]
        return [(int(targets[start]), batch.take(chosen[start:end])) for start, end in zip(starts, ends, strict=True)]

    def _below(self, tick: int) -> Batch | None:
        """Let go of everything below `tick`, each key's records in the order they came."""
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
        return batch

    def _valid(self, batch: Batch) -> Indices | None:
        """The valid records of a batch in order; None if they are all of it, as they stand."""
        packed, tombstone = pack(batch.meta, self._depth), batch.meta.tombstone
        order = in_order(packed)
        if order is not None:
            packed, tombstone = packed[order], tombstone[order]
        n = len(packed)
        again = np.empty(n, np.bool_)
        again[0] = False
        np.equal(packed[1:], packed[:-1], out=again[1:])
        if not again.any() and not tombstone.any():
            return order
        # Within a run of equal keys items and tombstones take turns, an item first: item i of the run is a tombstone
        # if i is odd. A run of odd length leaves its last item.
        places = np.arange(n)
        starts = np.maximum.accumulate(np.where(again, 0, places))
        odd = ((places - starts) & 1).astype(np.bool_)
        wrong = np.flatnonzero(odd != tombstone)
        if len(wrong):
            place = int(wrong[0])
            index = place if order is None else int(order[place])
            raise unmatched(self._place, OrderKey.at(batch.meta, index), bool(tombstone[place]))
        kept = np.flatnonzero(np.append(~again[1:], True) & ~tombstone)
        return kept if order is None else order[kept]


_arrival: Callable[[tuple[int, Batch]], int] = itemgetter(0)


def unmatched(place: str, key: OrderKey, tombstone: bool) -> UnmatchedTombstone:
    """The error for a tombstone without its item, or a second item with the same key."""
    what = "a tombstone came without its item" if tombstone else "a second item came with the same order key"
    return UnmatchedTombstone(
        f"{what} at {place}: tick {key.tick}, front {key.front}, offset {key.sequence}, child {list(key.child)}",
        way_out="some function on the way gave another result when it was called again with the same record: make it "
        "deterministic (no clock, no random numbers, no order of sets), then start the job again",
    )
