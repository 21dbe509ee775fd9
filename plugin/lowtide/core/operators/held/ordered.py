"""The ordered mode: records are held until nothing before them can come any more, then processed in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.late_seen import LateSeen
from lowtide.core.operators.order.order import tick_of
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.state.grouping import Grouping, GroupingNode
from lowtide.flow.plan.plan import Vertex


class Holding(Node):
    """A step that holds records until min time has passed them.

    One whose step is `clocked` also sends what time alone brings. For that:

    * `due_tick` is the smallest tick at which it will send without further input. What it holds has the ticks of its
      records, and need not be in it. It may lie as far ahead as it likes, and never below what `advance` was given; but
      what waits for the outside, or to be durable, stays due where it was (`CompletingNode`).
    * `advance(min_time)` processes in order all records held below `min_time` and all that is due below it. A due at
      `min_time` itself waits for the next call: records of this tick may still come from a clock upstream.
    * After `restore(…, tick)` it is as it was at `tick`, so `due_tick` is at least that.
    * `capture(tick)` gives the state at `tick`, even if `advance` is further: what was due at or above `tick` is still
      open in it. Nothing at or above the prune time may be forgotten when it closes (R14).

    Attributes:
        sends: The segments in which others wait for its output, faults included: its holds and dues there go to
            the tracker (R6, R6b).
        late_seen: What was late so far, by the name of the step, or of a join's side.
    """

    sends: tuple[int, ...] = ()
    late_seen: Mapping[str, LateSeen] = MappingProxyType({})

    @abstractmethod
    def advance(self, min_time: int, feed: Feed) -> None:
        """Process everything below a tick, in order: what is held and what is due; never a smaller tick than before."""

    def go_on(self, min_time: int, feed: Feed, portion: Portion) -> int:
        """Do of `advance(min_time)` what a portion allows, at least something if there is anything to do.

        Returns:
            The tick below which everything is done: `min_time`, or a smaller one if something is left. At that one some
            may be done; it counts as held, or due, until all of it is.
        """
        self.advance(min_time, feed)
        return min_time

    @abstractmethod
    def first_tick(self) -> int | None:
        """The lowest tick that is held; None if nothing is."""

    def hold(self, ticks: Sequence[int], feed: Feed) -> None:
        """Say that something will come out at these ticks without further input."""
        for segment in self.sends:
            feed.held.setdefault(segment, set()).update(ticks)

    @property
    def due_tick(self) -> int | None:
        """The smallest tick at which it will send without further input; None if there is none."""
        return None

    def time_ends(self) -> None:
        """Finish, as no record can come any more: do all that is held or due, however far ahead it lies."""


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
        self.hold(batch.ticks, feed)
