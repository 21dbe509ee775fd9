"""Records that wait until nothing before them can come any more: what a barrier and an ordered grouping share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowtide.errors import LifeEnded, TimeWentBack
from lowtide.operators.batch import Batch
from lowtide.operators.order import OrderKey, Packed, in_order, pack

_FIRST_TICK = -(1 << 63)


class UnmatchedTombstone(LifeEnded):
    """Make the functions of the named flow deterministic: one gave something else when it was called again."""


class Pending:
    """A hold: takes records in any order, gives those below a tick in order, without the ones taken back.

    An item and its tombstone have the same order key and come in this order; they leave no trace. What is wrong with
    that (a tombstone without its item, a second item with the same key) is found when the records are released.

    Args:
        place: What holds them, for errors.
        depth: The longest child path of the records.

    Attributes:
        released: Everything below this tick has been released; what comes below it later is an error.
    """

    def __init__(self, place: str, depth: int) -> None:
        self._place = place
        self._depth = depth
        self._batches: list[Batch] = []
        self.released = _FIRST_TICK

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def add(self, batch: Batch) -> None:
        """Take records; O(1) besides a look at their ticks.

        Raises:
            TimeWentBack: a record is below what has been released.
        """
        if len(batch) == 0:
            return
        first = int(batch.meta.tick.min())
        if first < self.released:
            raise TimeWentBack(self._place, first, self.released)
        self._batches.append(batch)

    def release(self, tick: int) -> Batch | None:
        """Give all records below `tick` in order, None if there are none; O(n log n) for those that are held.

        Raises:
            UnmatchedTombstone: see the class.
        """
        self.released = max(self.released, tick)
        below: list[Batch] = []
        above: list[Batch] = []
        for batch in self._batches:
            flags = batch.meta.tick < tick
            if flags.all():
                below.append(batch)
            elif not flags.any():
                above.append(batch)
            else:
                below.append(batch.take(np.flatnonzero(flags)))
                above.append(batch.take(np.flatnonzero(~flags)))
        self._batches = above
        return self._settle(Batch.concat(below)) if below else None

    def ticks(self) -> set[int]:
        """The ticks of which something is held."""
        return {tick for batch in self._batches for tick in batch.meta.ticks()}

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


def unmatched(place: str, key: OrderKey, tombstone: bool) -> UnmatchedTombstone:
    """The error for a tombstone without its item, or a second item with the same key."""
    what = "a tombstone came without its item" if tombstone else "a second item came with the same order key"
    return UnmatchedTombstone(
        f"{what} at {place}: tick {key.tick}, front {key.front}, offset {key.sequence}, child {list(key.child)}",
        way_out="some function on the way gave another result when it was called again with the same record: make it "
        "deterministic (no clock, no random numbers, no order of sets), then start the job again",
    )
