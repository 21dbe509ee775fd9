"""Calls a user's function with one record, and turns what goes wrong into a failure."""

from __future__ import annotations

from typing import Any

from lowtide.core.operators.faults.failure import Failure, UserError, raised
from lowtide.core.operators.plain.map_batches import MapBatchesNode
from lowtide.core.operators.program import per_record_node
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.site import Function
from lowtide.flow.steps.steps import Filter, FlatMap, MapBatches
from lowtide.local.items import Item


class Failed(Exception):
    """The record failed in the step."""

    def __init__(self, record: object, failure: str | Failure) -> None:
        self.failure = failure if isinstance(failure, Failure) else Failure(0, record, failure)


def called(function: Function, *arguments: Any) -> Any:
    """The result of a user's function, the record being its last argument; raises Failed."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
        record = arguments[-1]
        raise Failed(record, raised(0, record, error)) from None


def call(vertex: Vertex, item: Item) -> list[Item]:
    """What becomes of a record in a step that calls a function with it and keeps nothing; raises Failed."""
    if isinstance(vertex.step, MapBatches):
        return [_map_batch(vertex, item)]
    operator = per_record_node(vertex)
    assert operator is not None, f"no operator for {vertex.step}"
    if isinstance(vertex.step, FlatMap):
        result = called(lambda record: list(operator.function(record)), item.record)
    else:
        result = called(operator.function, item.record)
    fault = operator.fault(result)
    if fault is not None:
        raise Failed(item.record, fault)
    if isinstance(vertex.step, Filter):
        return [item] if result else []
    if isinstance(vertex.step, FlatMap):
        return [item.becomes(record).child(number) for number, record in enumerate(result, 1)]
    return [item.becomes(result)]


def _map_batch(vertex: Vertex, item: Item) -> Item:
    """A record in a batch of its own; what fails here always stops the run, as it does a job."""
    rows, failures = MapBatchesNode(vertex).apply([item.record])
    for failure in failures:
        raise UserError(vertex, item.message.position, failure)
    return item.becomes(rows[0])
