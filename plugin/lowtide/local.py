"""The flow here and now: single-threaded, in order, record by record. The oracle of all else.

It shares schemas, formats and the wording of failures with the workers, but none of the ways in which they carry
batches, and takes every record through its columns where a worker would, so that a function sees what it sees there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from lowtide.bytes_column import BytesColumn
from lowtide.compiler import compile_flow
from lowtide.errors import FlowError
from lowtide.flow import DEAD_LETTERS, Flow
from lowtide.inference import key_column
from lowtide.operators.batch import Batch
from lowtide.operators.batch_mapping import MapBatchesOperator
from lowtide.operators.catalogue import per_record_operator
from lowtide.operators.dead_letter import Dead, as_json
from lowtide.operators.exchange import front_units
from lowtide.operators.failure import Failure, MessageRefused, UserError, raised, unreadable
from lowtide.operators.flat_mapping import FlatMapOperator
from lowtide.operators.meta import Meta, Position
from lowtide.operators.per_record import PerRecord
from lowtide.plan import Plan, Vertex
from lowtide.schema import schema_of
from lowtide.steps import Filter, KeyBy, MapBatches, Read, Write
from lowtide_snapshots.hashing import hash_unit


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a source's log.

    Attributes:
        position: Where it stands.
        timestamp: The log's timestamp in ms.
        key: Its key, None for none.
        value: Its value, None for a tombstone.
    """

    position: Position
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message that a sink is given, in its lane, and where the message it was made of stands."""

    lane: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    position: Position


@dataclass(frozen=True, slots=True)
class _Item:
    """A record on its way, the message it was made of, and its hash unit once it has one."""

    record: Any
    message: Message
    unit: int = -1


def run_records(flow: Flow, inputs: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Run a flow on records or messages' values per source; records per sink, failed ones under "dead-letters".

    Raises:
        FlowError: the flow does not fit together, or an input is of no source or of another type.
        MessageRefused, UserError: as in a job, if the flow names no dead letters.
    """
    plan = compile_flow(flow, parallelism=1)
    sources = {vertex.name: vertex for vertex in plan.sources()}
    unknown = sorted(set(inputs) - set(sources))
    if unknown:
        raise FlowError(f"no source is named {', '.join(unknown)}; the flow reads {', '.join(sources)}")
    run = _Run(plan)
    for front, (name, vertex) in enumerate(sources.items()):
        for sequence, record in enumerate(inputs.get(name, ())):
            run.take(vertex, Position(front, sequence), record)
    run.finish()
    written = {vertex.name: [item.record for item in run.items[vertex.id]] for vertex in plan.sinks()}
    return {**written, DEAD_LETTERS: run.dead} if plan.dead_letters is not None else written


def run_log(plan: Plan, log: Mapping[str, Iterable[Message]]) -> tuple[dict[str, list[Delivered]], list[Dead]]:
    """Run a plan on the messages of each source, in the order given.

    Returns:
        What each sink is given, by its name, in order; every lane's own sequence is what a job must reproduce. And
        the dead letters.
    """
    run = _Run(plan)
    for vertex in plan.sources():
        for message in log.get(vertex.name, ()):
            run.read(vertex, message)
    run.finish()
    return {vertex.name: run.delivered(vertex) for vertex in plan.sinks()}, run.dead


class _Run:
    """One run of a plan.

    Attributes:
        items: The records that came out of each vertex (of a sink: that go in), in order.
        dead: The dead letters.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.items: dict[int, list[_Item]] = {vertex.id: [] for vertex in plan.vertices}
        self.dead: list[Dead] = []

    def take(self, vertex: Vertex, position: Position, record: object) -> None:
        """Take a record, or the bytes of one, as if it had been read."""
        if isinstance(record, bytes):
            self.read(vertex, Message(position, 0, None, record))
        elif type(record) is vertex.gives:
            self.items[vertex.id].append(_Item(record, Message(position, 0, None, as_json(record))))
        else:
            expected = f"{vertex.gives.__qualname__} or bytes"
            raise FlowError(f'source "{vertex.name}" takes {expected}, found {type(record).__qualname__}: {record!r}')

    def read(self, vertex: Vertex, message: Message) -> None:
        """Parse one message."""
        assert isinstance(vertex.step, Read)
        format_ = vertex.step.source.format
        decoded = format_.decode(BytesColumn.from_list([message.key]), BytesColumn.from_list([message.value]))
        self.items[vertex.id] += [_Item(record, message) for record in decoded.rows]
        for _, reason in decoded.failures:
            failure = unreadable(0, message.value, format_, vertex.gives, reason)
            if self._plan.dead_letters is None:
                raise MessageRefused(vertex, message.position, failure)
            self._bury(vertex, message, failure)

    def finish(self) -> None:
        """Take all records through all steps, one step after the other."""
        for vertex in self._plan.vertices:
            for parent in vertex.parents:
                self.items[vertex.id] = self._step(vertex, self._plan.vertices[parent])

    def delivered(self, vertex: Vertex) -> list[Delivered]:
        """The messages of a sink."""
        assert isinstance(vertex.step, Write)
        sink, lanes = vertex.step.sink, self._plan.lane_of_unit().tolist()
        column = key_column(sink)
        result = []
        for item in self.items[vertex.id]:
            key = None if column is None else _key_bytes(getattr(item.record, column))
            value = sink.format.encode([item.record])[0]
            result.append(Delivered(lanes[item.unit], key, value, item.message.timestamp, item.message.position))
        return result

    def _step(self, vertex: Vertex, parent: Vertex) -> list[_Item]:
        step = vertex.step
        if isinstance(step, KeyBy | Write):
            # What does not fit its type is found once, by the first step that asks, and gone for those behind it.
            items = self.items[parent.id] = [item for item in self.items[parent.id] if self._is_sound(parent, item)]
            return [self._keyed(step, vertex, item) for item in items] if isinstance(step, KeyBy) else items
        if isinstance(step, MapBatches):
            return self._map_batches(vertex, step, self.items[parent.id])
        operator = per_record_operator(vertex)
        assert operator is not None, f"no operator for {step}"
        return [result for item in self.items[parent.id] for result in self._call(vertex, operator, item)]

    def _call(self, vertex: Vertex, operator: PerRecord, item: _Item) -> list[_Item]:
        """What becomes of one record in a step that calls a function with it."""
        try:
            result = operator.function(item.record)
            if isinstance(operator, FlatMapOperator):
                result = list(result)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            self._fail(vertex, item, raised(0, item.record, error))
            return []
        fault = operator.fault(result)
        if fault is not None:
            self._fail(vertex, item, Failure(0, item.record, fault))
            return []
        if isinstance(vertex.step, Filter):
            return [item] if result else []
        return [replace(item, record=each) for each in (result if isinstance(result, list) else [result])]

    def _map_batches(self, vertex: Vertex, step: MapBatches, items: list[_Item]) -> list[_Item]:
        if not items:
            return []
        nowhere = np.zeros(len(items), np.int64)
        meta = Meta(nowhere.astype(np.int32), nowhere, nowhere)
        batch = Batch(schema_of(vertex.takes), meta, rows=[item.record for item in items])
        stepped = MapBatchesOperator(step.function, vertex.gives).apply(batch, tolerate=False)
        for failure in stepped.failures:
            raise UserError(vertex, items[0].message.position, failure)
        return [replace(item, record=record) for item, record in zip(items, stepped.batch.rows(), strict=True)]

    def _keyed(self, step: KeyBy, vertex: Vertex, item: _Item) -> _Item:
        """The record as it comes out of an exchange."""
        schema = schema_of(vertex.gives)
        record = schema.rows(schema.columns([item.record]))[0]
        if step.columns:
            unit = hash_unit([_plain(getattr(record, column)) for column in step.columns], self._plan.units)
        else:
            unit = int(front_units(np.array([item.message.position.front], np.int32), self._plan.units)[0])
        return _Item(record, item.message, unit)

    def _is_sound(self, vertex: Vertex, item: _Item) -> bool:
        fault = schema_of(vertex.gives).fault(item.record)
        if fault is not None:
            self._fail(vertex, item, Failure(0, item.record, fault.what))
        return fault is None

    def _fail(self, vertex: Vertex, item: _Item, failure: Failure) -> None:
        if self._plan.dead_letters is None:
            raise UserError(vertex, item.message.position, failure)
        self._bury(vertex, item.message, failure)

    def _bury(self, vertex: Vertex, message: Message, failure: Failure) -> None:
        original = (message.key, message.value) if vertex.level == 0 else (None, as_json(failure.record))
        self.dead.append(Dead(vertex.name, message.position, message.timestamp, failure.error, *original))


def _plain(value: Any) -> Any:
    """A key's value as it is hashed."""
    return value.value if isinstance(value, Enum) else value


def _key_bytes(value: Any) -> bytes | None:
    """A key's value as a message's key: text in UTF-8, bytes as they are, numbers in decimal digits."""
    plain = _plain(value)
    return plain if plain is None or isinstance(plain, bytes) else str(plain).encode()
