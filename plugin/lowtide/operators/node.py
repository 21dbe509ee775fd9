"""One step of a level at work: it takes batches and passes on what it makes of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from lowtide.fields import fits_of
from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure
from lowtide.operators.fault import faults
from lowtide.operators.feed import Feed
from lowtide.operators.order import with_child
from lowtide.plan import Vertex
from lowtide.schema import schema_of

__all__ = ["Node"]


class Node(ABC):
    """A vertex at work; `lead` says who takes what it gives.

    Attributes:
        vertex: The vertex.
        sound: Whether its records surely fit their type, because they were made by a typed decoder or are bytes as
            they came: then no one looks at their fields again.
        looks: Whether it needs records whose fields are what they are declared to be.
    """

    sound = False
    looks = False

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex
        self._followers: list[tuple[Node, int, bool]] = []
        """The nodes that take its records, each with the port and whether fields are looked at before it."""

    def lead(self, followers: Sequence[tuple[Node, int]]) -> None:
        """Say who takes its records, and at which port, in the order they were written.

        Fields are looked at once, before the first follower that needs it: what does not fit is gone for those after.
        """
        looked = self.sound
        for follower, port in followers:
            self._followers.append((follower, port, follower.looks and not looked))
            looked = looked or follower.looks

    @abstractmethod
    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Take records, at least one, that come in at a port."""

    def pass_on(self, batch: Batch, feed: Feed) -> None:
        """Give records, at least one, to all that take them; of several ways each appends its number (R4)."""
        followers = self._followers
        alone = len(followers) == 1
        for ordinal, (follower, port, looks) in enumerate(followers, 1):
            if looks:
                batch = self._sound(batch, feed)
                if not batch.ats:
                    return
            branch = batch if alone else batch.with_ats([with_child(at, ordinal) for at in batch.ats])
            follower.take(branch, port, feed)

    def bury(self, batch: Batch, failures: list[Failure], feed: Feed) -> Batch:
        """Put the records that failed aside; return the others, perhaps none."""
        feed.fail(faults(self.vertex, batch, failures, feed.rows))
        return batch.without([failure.index for failure in failures])

    def _sound(self, batch: Batch, feed: Feed) -> Batch:
        """The records whose fields are what they are declared to be: a quick look each, where they are."""
        fits = fits_of(self.vertex.gives)
        rows = batch.rows
        for row in rows:
            if not fits(row):
                break
        else:
            return batch
        schema = schema_of(self.vertex.gives)
        found = [(index, schema.fault(row)) for index, row in enumerate(rows) if not fits(row)]
        failures = [Failure(index, rows[index], fault.what) for index, fault in found if fault is not None]
        return self.bury(batch, failures, feed) if failures else batch
