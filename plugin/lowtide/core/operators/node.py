"""One step of a level at work: it takes batches and passes on what it makes of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.faults.failure import Failure, Fault, faults
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.order.order import step_id, with_child, with_trace
from lowtide.core.operators.questions import Question
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import fits_of
from lowtide.flow.schema.schema import schema_of


class Parcel:
    """Records for one worker of the next level.

    Attributes:
        vertex: The exchange's id, which the next level's program is fed with.
        target: The worker's place in its level.
        batch: The records with their hash units.
        payload: The records encoded, as they stand in a frame (`codec.encode_rows`).
    """

    __slots__ = ("batch", "payload", "target", "vertex")

    def __init__(self, vertex: int, target: int, batch: Batch, payload: bytes) -> None:
        self.vertex = vertex
        self.target = target
        self.batch = batch
        self.payload = payload


class Feed:
    """One call's input, where it is messages; what has come of it so far; and what a loop still has to take.

    Attributes:
        rows: The messages at level 0, else None.
        parcels: For the next level, in the order they were made.
        delivers: For sinks, items and tombstones: `(sink, records)`; a barrier lets the valid ones through.
        faults: Records that failed, rows are `Fault`s. They act only when a barrier would release them: until then a
            tombstone may take them back.
        held: By segment ticks of what is held by ordered steps, and will come out there (R6).
        again: What goes back to a loop's head.
        questions: Records that an outside service is to be asked about.
        kept: Answers for the logs of calls, as barriers have released them, by the log's vertex.
    """

    __slots__ = ("again", "delivers", "faults", "held", "kept", "parcels", "questions", "rows")

    def __init__(self, rows: SourceRows | None = None) -> None:
        self.rows = rows
        self.parcels: list[Parcel] = []
        self.delivers: list[tuple[int, Batch]] = []
        self.faults: list[Batch] = []
        self.held: dict[int, set[int]] = {}
        self.again: deque[tuple[Node, Batch]] = deque()
        self.questions: list[Question] = []
        self.kept: list[tuple[int, Bundle]] = []

    def fail(self, batch: Batch) -> None:
        """Put `Fault`s aside, and tombstones of such, each with its step's id folded into its trace (R4).

        Of two versions of a record one may fail at one step and the other at another. Their order keys would be the
        same, and which of them comes first would hang on which step stands before the other.
        """
        ats = [with_trace(at, _id_of(_place_of(fault))) for at, fault in zip(batch.ats, batch.rows, strict=True)]
        self.faults.append(batch.with_ats(ats))

    def __repr__(self) -> str:
        parts: dict[str, Any] = {name: getattr(self, name) for name in ("parcels", "delivers", "faults", "held")}
        return f"Feed({', '.join(f'{name}={part!r}' for name, part in parts.items() if part)})"


def _place_of(fault: Fault) -> str:
    """The step's name; of a sink, which may be called as a step before it is, something that is not a step's name."""
    vertex = fault.vertex
    return f"write {vertex.name}" if vertex.step.writes else vertex.name


@cache
def _id_of(step: str) -> int:
    """Return what the faults of a step fold into their traces; unlike any exchange, source or merge."""
    return step_id("", step, 0, 0)


class Node(ABC):
    """A vertex at work; `lead` says who takes what it gives.

    Attributes:
        vertex: The vertex.
        sound: Whether its records surely fit their type, because they were made by a typed decoder or are bytes as
            they came: then no one looks at their fields again.
        looks: Whether it needs records whose fields are what they are declared to be.
        states: What it keeps, as `KeyedState` does, by the name of the step, or of a join's side.
    """

    sound = False

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex
        self.looks = vertex.step.looks or vertex.is_exchange
        self._followers: list[tuple[Node, int, bool]] = []
        """The nodes that take its records, each with the port and whether fields are looked at before it."""
        self._lates: Mapping[int, Node] = {}
        self.states: Mapping[str, Any] = {}

    @property
    def repairs(self) -> int:
        """The number of its outputs taken back so far."""
        return 0

    def lead(self, followers: Sequence[tuple[Node, int]], lates: Mapping[int, Node] | None = None) -> None:
        """Say who takes its records, and at which port, in the order they were written.

        Fields are looked at once, before the first follower that needs it: what does not fit is gone for those after.

        Args:
            followers: The nodes that take its records, each with the port.
            lates: Those that take what is late, by the port at which it comes; without one it is dropped.
        """
        self._lates = lates or {}
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
