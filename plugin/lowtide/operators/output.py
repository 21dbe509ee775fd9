"""What a program hands to whoever drives it: each output is one of four kinds."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.operators.batch import Batch


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Records for the next level.

    Attributes:
        vertex: The exchange's id, which the next level's program is fed with.
        batch: The records with their hash units, columns made: `split` it by `plan.worker_of_unit()`, then `to_arrow`.
    """

    vertex: int
    batch: Batch


@dataclass(frozen=True, slots=True, eq=False)
class Deliver:
    """Records for a sink, items and tombstones: a barrier lets the valid ones through, `SinkOperator` encodes them.

    Attributes:
        vertex: The sink's id.
        batch: The records, columns made.
    """

    vertex: int
    batch: Batch


@dataclass(frozen=True, slots=True, eq=False)
class Faults:
    """Records that failed. They act only when a barrier would release them: until then a tombstone may take them back.

    Attributes:
        batch: Rows are `Fault`s; the meta is that of the records.
    """

    batch: Batch


@dataclass(frozen=True, slots=True)
class Hold:
    """Something of these ticks is held by an ordered grouping whose output can leave the level (R6).

    Attributes:
        ticks: Ascending.
    """

    ticks: list[int]


Output = Exchange | Deliver | Faults | Hold
