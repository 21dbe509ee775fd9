"""What has come of one call of a program, for whoever drives it."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from lowtide.fronts.source_rows import SourceRows
from lowtide.operators.batch import Batch
from lowtide.operators.order import step_id, with_trace

if TYPE_CHECKING:
    from lowtide.operators.node import Node

__all__ = ["Feed", "Parcel"]


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
        held: Ticks of what is held by ordered groupings whose output can leave the level (R6).
        again: What goes back to a loop's head.
    """

    __slots__ = ("again", "delivers", "faults", "held", "parcels", "rows")

    def __init__(self, rows: SourceRows | None = None) -> None:
        self.rows = rows
        self.parcels: list[Parcel] = []
        self.delivers: list[tuple[int, Batch]] = []
        self.faults: list[Batch] = []
        self.held: set[int] = set()
        self.again: deque[tuple[Node, Batch]] = deque()

    def fail(self, batch: Batch) -> None:
        """Put `Fault`s aside, and tombstones of such, each with its step's id folded into its trace (R4).

        Of two versions of a record one may fail at one step and the other at another. Their order keys would be the
        same, and which of them comes first would hang on which step stands before the other.
        """
        ats = [with_trace(at, _id_of(fault.vertex.name)) for at, fault in zip(batch.ats, batch.rows, strict=True)]
        self.faults.append(batch.with_ats(ats))

    def __repr__(self) -> str:
        parts: dict[str, Any] = {name: getattr(self, name) for name in ("parcels", "delivers", "faults", "held")}
        return f"Feed({', '.join(f'{name}={part!r}' for name, part in parts.items() if part)})"


@cache
def _id_of(step: str) -> int:
    """What the faults of a step fold into their traces; other than what any exchange, source or merge does."""
    return step_id("", step, 0, 0)
