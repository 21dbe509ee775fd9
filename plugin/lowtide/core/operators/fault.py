"""A record that failed, as a value: it stops the job or becomes a dead letter only when a barrier releases it.

Grouping in optimistic mode runs user code on windows that never were; what fails there is taken back by a tombstone
like any other record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.batch import Batch
from lowtide.core.operators.dead_letter import Dead, as_json
from lowtide.core.operators.failure import AtRecord, Failure, MessageRefused, TooLarge, UserError
from lowtide.core.operators.order import delivered_ms, position_of, tick_of
from lowtide.flow.plan import Plan, Vertex
from lowtide.flow.steps import MapBatches, Read


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
        original: The message it was made of; None after an exchange.
    """

    vertex: Vertex
    failure: Failure
    original: Original | None


def faults(vertex: Vertex, batch: Batch, failures: Sequence[Failure], rows: SourceRows | None) -> Batch:
    """Make a batch of `Fault`s.

    Args:
        vertex: The step that failed.
        batch: The records the step was given; a failure's index says which.
        failures: At least one.
        rows: The messages at level 0.
    """
    found = batch.pick([failure.index for failure in failures])
    made = [
        Fault(vertex, failure, None if rows is None else original_of(rows, position_of(at).sequence))
        for failure, at in zip(failures, found.ats, strict=True)
    ]
    return found.with_rows(made)


def ends_life(plan: Plan, fault: Fault) -> bool:
    """Whether a fault ends the life, if nothing takes it back; else it becomes a dead letter."""
    return plan.dead_letters is None or isinstance(fault.vertex.step, MapBatches) or bool(fault.failure.way_out)


def error_of(at: bytes, fault: Fault) -> AtRecord:
    """What a life ends with at a fault with this order key."""
    vertex, failure, position = fault.vertex, fault.failure, position_of(at)
    if failure.too_large:
        return TooLarge(vertex, position, failure)
    if isinstance(vertex.step, Read):
        return MessageRefused(vertex, position, failure)
    return UserError(vertex, position, failure)


def letters(plan: Plan, ats: Sequence[bytes], found: Sequence[Fault]) -> list[Dead]:
    """Make dead letters of faults that do not end the life, in order.

    Args:
        plan: The plan.
        ats: Their order keys.
        found: The faults, none of them taken back.
    """
    made = []
    for at, fault in zip(ats, found, strict=True):
        original = fault.original or Original(None, as_json(fault.failure.record), None)
        made.append(
            Dead(
                fault.vertex.name,
                position_of(at),
                delivered_ms(tick_of(at), plan.slack_ms),
                fault.failure.error,
                original.key,
                original.value,
                original.headers,
            )
        )
    return made


def original_of(rows: SourceRows, offset: int) -> Original:
    """The message with this offset."""
    index = rows.index_of(offset)
    return Original(rows.keys[index], rows.values[index], None if rows.headers is None else rows.headers[index])
