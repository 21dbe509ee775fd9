"""Records that wait until nothing before them can come any more: what a barrier and an ordered grouping share."""

from __future__ import annotations

from heapq import heappop, heappush

from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, strictly_ascending, tick_cuts
from lowtide.core.operators.order.unmatched import unmatched
from lowtide.core.operators.state.group import SPARE
from lowtide.errors import TimeWentBack


class Pending:
    """A hold: takes records in any order, gives those below a tick in order, without the ones taken back.

    An item and its tombstone have the same order key and come in this order; they leave no trace. What is wrong with
    that (a tombstone without its item, a second item with the same key) is found when the records are released.
    They are kept by tick, so a release costs what it gives, and what is held for long costs nothing but memory. Of a
    tick at which more has been taken back than is left, and `SPARE`, what is left is kept alone.

    Args:
        owner: What holds them, for errors.

    Attributes:
        released: Everything below this tick has been released; what comes below it later is an error.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._parts: dict[int, list[Batch]] = {}
        """By tick, in the order they came."""
        self._taken_back: dict[int, tuple[int, int]] = {}
        """By tick with tombstones how many records and tombstones there are in all, and how many tombstones."""
        self._ticks: list[int] = []
        """A heap of the ticks in `_parts`."""
        self._size = 0
        self.released = FIRST_TICK

    def __len__(self) -> int:
        return self._size

    @property
    def first_tick(self) -> int | None:
        """The lowest tick that is held; None if nothing is."""
        return self._ticks[0] if self._ticks else None

    def add(self, batch: Batch) -> None:
        """Take records; O(ticks log ticks), besides a sort where they are of several ticks and in no order.

        Raises:
            TimeWentBack: a record is below what has been released.
            UnmatchedTombstone: see the class; found here only where much has been taken back.
        """
        ticks = batch.ticks
        if ticks[0] < self.released:
            raise TimeWentBack(self._owner, ticks[0], self.released)
        self._size += len(batch.ats)
        if len(ticks) == 1:
            self._put(ticks[0], batch)
            return
        batch = batch.in_order()  # Stable: an item stays before its tombstone.
        start = 0
        for tick, stop in zip(ticks, tick_cuts(batch.ats, ticks), strict=True):
            self._put(tick, batch.slice(start, stop, [tick]))
            start = stop

    def release(self, tick: int) -> list[Batch]:
        """Give all records below `tick`: a batch per tick that has any, each in order, ticks ascending.

        Raises:
            UnmatchedTombstone: see the class.
        """
        self.released = max(self.released, tick)
        found: list[Batch] = []
        ticks = self._ticks
        while ticks and ticks[0] < tick:
            held = heappop(ticks)
            self._taken_back.pop(held, None)
            parts = self._parts.pop(held)
            if not parts:
                continue
            batch = Batch.concat(parts)
            self._size -= len(batch.ats)
            if batch.flags is not None or not strictly_ascending(batch.ats):
                batch = self._valid(batch.in_order())
                if not batch.ats:
                    continue
            found.append(batch)
        return found

    def _put(self, tick: int, batch: Batch) -> None:
        parts = self._parts.get(tick)
        if parts is None:
            self._parts[tick] = [batch]
            heappush(self._ticks, tick)
        else:
            parts.append(batch)
        if batch.flags is not None or tick in self._taken_back:
            self._bound(tick, batch)

    def _bound(self, tick: int, batch: Batch) -> None:
        """Note what a batch has taken back; keep what is left alone, once it is less than that: O(1) on average."""
        parts = self._parts[tick]
        count, tombstones = self._taken_back.get(tick) or (sum([len(part.ats) for part in parts[:-1]]), 0)
        count += len(batch.ats)
        tombstones += 0 if batch.flags is None else sum(batch.flags)
        if 3 * tombstones <= count + SPARE:
            self._taken_back[tick] = count, tombstones
            return
        self._taken_back.pop(tick, None)
        left = self._valid(Batch.concat(parts).in_order())
        parts[:] = [left] if left.ats else []
        self._size -= count - len(left.ats)

    def _valid(self, batch: Batch) -> Batch:
        """The items that were not taken back; within a run of equal keys items and tombstones take turns."""
        kept: list[int] = []
        open_at = b""
        for index, at in enumerate(batch.ats):
            tombstone = batch.flags is not None and batch.flags[index]
            if tombstone != (at == open_at):
                raise unmatched(self._owner, at, tombstone)
            if tombstone:
                kept.pop()
                open_at = b""
            else:
                kept.append(index)
                open_at = at
        return batch.pick(kept)
