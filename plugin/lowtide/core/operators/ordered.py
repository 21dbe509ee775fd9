"""The ordered mode: records are held until nothing before them can come any more, then processed in order."""

from __future__ import annotations

from abc import abstractmethod

from lowtide.core.operators.batch import Batch
from lowtide.core.operators.grouping import Grouping, GroupingNode
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order import tick_of
from lowtide.core.operators.pending import Pending
from lowtide.flow.plan import Vertex


class Holding(Node):
    """A step that holds records until min time has passed them.

    Attributes:
        outward: Whether others wait for what it gives, be it a fault: then its holds are told to the tracker (R6).
    """

    outward = False

    @abstractmethod
    def advance(self, min_time: int, feed: Feed) -> None:
        """Process everything below the level's min time, in order."""

    @abstractmethod
    def first_tick(self) -> int | None:
        """The lowest tick that is held; None if nothing is."""


class OrderedNode(Holding, GroupingNode):
    """A grouping with a hold before it; it has nothing to mend, except where a loop brings a record back."""

    def __init__(self, vertex: Vertex, grouping: Grouping) -> None:
        super().__init__(vertex, grouping)
        self._pending = Pending(f'step "{vertex.name}"')

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold records.

        Only a record that a loop brings back after its tick has been released goes on at once: it was held before.
        """
        released = self._pending.released
        if batch.ticks[0] < released:
            late = [tick_of(at) < released for at in batch.ats]
            now = batch.where(late)
            early = batch.where([not each for each in late])
            if early.ats:
                self._hold(early, feed)
            self.emit(*self.grouping.insert(now), feed)
        else:
            self._hold(batch, feed)

    def advance(self, min_time: int, feed: Feed) -> None:
        """Process everything below the level's min time, in order."""
        released = self._pending.release(min_time)
        if released:
            self.emit(*self.grouping.insert(Batch.concat(released)), feed)

    def first_tick(self) -> int | None:
        """The lowest tick that is held; None if nothing is."""
        return self._pending.first_tick

    def _hold(self, batch: Batch, feed: Feed) -> None:
        self._pending.add(batch)
        if self.outward:
            feed.held.update(batch.ticks)
