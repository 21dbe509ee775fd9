"""A record that failed, as a value: it stops the job or becomes a dead letter only when a barrier releases it.

Grouping in optimistic mode runs user code on windows that never were; what fails there is taken back by a tombstone
like any other record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.dead_letter import Dead, as_json
from lowtide.operators.failure import Failure, MessageRefused, TooLarge, UserError
from lowtide.operators.meta import Meta
from lowtide.operators.source import SourceRows
from lowtide.plan import Plan, Vertex
from lowtide.steps import MapBatches, Read


@dataclass(frozen=True, slots=True)
class Original:
    """The message that a record of level 0 was made of: its key, value and packed headers."""

    key: bytes | None
    value: bytes | None
    headers: bytes | None


@dataclass(frozen=True, slots=True)
class Fault:
    """One record that failed at a step.

    Attributes:
        vertex: The step.
        failure: What happened.
        original: The message it was made of; None behind an exchange.
    """

    vertex: Vertex
    failure: Failure
    original: Original | None


def faults(vertex: Vertex, meta: Meta, failures: Sequence[Failure], rows: SourceRows | None) -> Batch:
    """Make a batch of `Fault`s.

    Args:
        vertex: The step that failed.
        meta: Of the records the step was given; a failure's index says which.
        failures: At least one.
        rows: The messages at level 0.
    """
    meta = meta.take(np.array([failure.index for failure in failures], np.int64))
    sequences = meta.sequence.tolist()
    found = [
        Fault(vertex, failure, None if rows is None else _original(rows, sequence))
        for failure, sequence in zip(failures, sequences, strict=True)
    ]
    return Batch(None, meta, rows=found)


def act(plan: Plan, batch: Batch) -> list[Dead]:
    """Let faults act, in order: make dead letters of them if the flow names a sink for such.

    Args:
        plan: The plan.
        batch: Rows are `Fault`s, none of them a tombstone.

    Raises:
        FrameTooLarge: a record is too large, and the flow names no dead letters.
        MessageRefused: a message cannot be parsed, and the flow names no dead letters.
        UserError: a user's function failed, and the flow names no dead letters; of `map_batches` always.
    """
    letters = []
    ticks = batch.meta.tick.tolist()
    for index, fault in enumerate(batch.rows()):
        position = batch.meta.position(index)
        vertex, failure = fault.vertex, fault.failure
        if plan.dead_letters is None and failure.too_large:
            raise TooLarge(vertex, position, failure)
        if plan.dead_letters is None and isinstance(vertex.step, Read):
            raise MessageRefused(vertex, position, failure)
        if plan.dead_letters is None or isinstance(vertex.step, MapBatches):
            raise UserError(vertex, position, failure)
        original = fault.original or Original(None, as_json(failure.record), None)
        letters.append(
            Dead(
                vertex.name,
                position,
                ticks[index] * plan.slack_ms,
                failure.error,
                original.key,
                original.value,
                original.headers,
            )
        )
    return letters


def _original(rows: SourceRows, sequence: int) -> Original:
    index = rows.index_of(sequence)
    headers = None if rows.headers is None else rows.headers[index]
    return Original(rows.keys[index], rows.values[index], headers)
