"""Calls a user's function with one record, and turns errors into a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowtide.core.operators.faults.failure import Failure, UserError, raised
from lowtide.core.operators.plain.map_batches import MapBatchesNode
from lowtide.core.operators.plain.per_record import FilterNode, FlatMapNode, MapNode, PerRecord
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.site import Function
from lowtide.flow.steps.steps import Filter, FlatMap, Map, MapBatches, Step
from lowtide.local.items import Item


class Failed(Exception):
    """The record failed in the step."""

    def __init__(self, record: object, failure: str | Failure) -> None:
        self.failure = failure if isinstance(failure, Failure) else Failure(0, record, failure)


def called(function: Function, *arguments: Any) -> Any:
    """Return the result of a user's function, whose last argument is the record; raises Failed."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
        record = arguments[-1]
        raise Failed(record, raised(0, record, error)) from None


def call(vertex: Vertex, item: Item) -> list[Item]:
    """Return the output of a step that calls a function with a record and keeps nothing; raises Failed."""
    return _CALLS[type(vertex.step)](vertex, item)


def _map(vertex: Vertex[Map], item: Item) -> list[Item]:
    return [item.becomes(_sound(MapNode(vertex), item, called(vertex.step.function, item.record)))]


def _flat_map(vertex: Vertex[FlatMap], item: Item) -> list[Item]:
    result = called(lambda record: list(vertex.step.function(record)), item.record)
    _sound(FlatMapNode(vertex), item, result)
    return [item.becomes(record).child(number) for number, record in enumerate(result, 1)]


def _filter(vertex: Vertex[Filter], item: Item) -> list[Item]:
    return [item] if _sound(FilterNode(vertex), item, called(vertex.step.function, item.record)) else []


def _sound(node: PerRecord, item: Item, result: Any) -> Any:
    fault = node.fault(result)
    if fault is not None:
        raise Failed(item.record, fault)
    return result


def _map_batch(vertex: Vertex[MapBatches], item: Item) -> list[Item]:
    """Map a record as a batch of its own; a failure here always stops the run, as it stops a job."""
    rows, failures = MapBatchesNode(vertex).apply([item.record])
    for failure in failures:
        raise UserError(vertex, item.message.position, failure)
    return [item.becomes(rows[0])]


_CALLS: dict[type[Step], Callable[[Vertex[Any], Item], list[Item]]] = {
    Map: _map,
    FlatMap: _flat_map,
    Filter: _filter,
    MapBatches: _map_batch,
}
