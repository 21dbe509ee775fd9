"""The ordered mode: records are held until nothing before them can come any more, then processed in order."""

from __future__ import annotations

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.grouping import Grouping
from lowtide.operators.pending import Pending


class Ordered:
    """A grouping with a hold before it; it has nothing to mend, except where a loop brings a record back.

    Args:
        grouping: What is held from.
        place: The step, for errors.
        depth: The longest child path of the records.
    """

    def __init__(self, grouping: Grouping, place: str, depth: int) -> None:
        self.grouping = grouping
        self._pending = Pending(place, depth)

    def insert(self, batch: Batch) -> tuple[list[Batch], list[int]]:
        """Hold records; return what comes out at once, and the ticks of what is held.

        Only a record that a loop brings back after its tick has been released comes out at once: it was held before.
        """
        late = batch.meta.tick < self._pending.released
        if not late.any():
            self._pending.add(batch)
            return [], batch.meta.ticks()
        outputs = self.grouping.insert(batch.take(np.flatnonzero(late)))
        early = batch.take(np.flatnonzero(~late))
        self._pending.add(early)
        return outputs, early.meta.ticks()

    def advance(self, min_time: int) -> list[Batch]:
        """Process everything below the level's min time."""
        batch = self._pending.release(min_time)
        return [] if batch is None else self.grouping.insert(batch)
