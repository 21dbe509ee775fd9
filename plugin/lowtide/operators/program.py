"""What one level of a plan does with the records that reach it: pure, no I/O, no clock.

    program = Program(plan, level=0)
    program.feed_source(vertex, rows)    # -> [Exchange(...), Dead(...), ...]
    Program(plan, level=1).feed(exchange.vertex, batch)    # -> [Deliver(...), ...]

Outputs stand in the order in which they were made: a batch goes through one branch after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.operators.batch import Batch
from lowtide.operators.catalogue import operator
from lowtide.operators.dead_letter import dead_letter
from lowtide.operators.exchange import ExchangeOperator, as_columns
from lowtide.operators.failure import Failure, MessageRefused, UserError
from lowtide.operators.meta import Position
from lowtide.operators.output import Deliver, Exchange, Output
from lowtide.operators.per_record import Operator
from lowtide.operators.sink import SinkOperator
from lowtide.operators.source import SourceOperator, SourceRows
from lowtide.plan import Plan, Vertex
from lowtide.steps import KeyBy, MapBatches, Read, Write


class Program:
    """The operators of one level.

    Attributes:
        plan: The plan.
        level: The level.
    """

    def __init__(self, plan: Plan, level: int) -> None:
        self.plan = plan
        self.level = level
        self._tolerate = plan.dead_letters is not None
        self._children = {vertex.id: plan.children(vertex.id) for vertex in plan.vertices}
        self._sources: dict[int, SourceOperator] = {}
        self._exchanges: dict[int, ExchangeOperator] = {}
        self._sinks: dict[int, SinkOperator] = {}
        self._operators: dict[int, Operator] = {}
        for vertex in plan.vertices:
            if vertex.level == level or (vertex.is_exchange and vertex.level == level + 1):
                self._install(vertex)

    def _install(self, vertex: Vertex) -> None:
        step = vertex.step
        if isinstance(step, Read):
            self._sources[vertex.id] = SourceOperator(step.source)
        elif isinstance(step, KeyBy):
            self._exchanges[vertex.id] = ExchangeOperator(step, self.plan.units)
        elif isinstance(step, Write):
            self._sinks[vertex.id] = SinkOperator(step.sink, self.plan.lane_of_unit())
        else:
            worker = operator(vertex)
            assert worker is not None, f"no operator for {step}"
            self._operators[vertex.id] = worker

    def feed_source(self, vertex: int, rows: SourceRows) -> list[Output]:
        """Take messages of a source of this level.

        Raises:
            MessageRefused: a message cannot be parsed, and the flow names no dead letters.
            UserError: a user's function failed, and the flow names no dead letters.
        """
        feed = _Feed(rows, [])
        source = self.plan.vertices[vertex]
        stepped = self._sources[vertex].parse(rows)
        for failure in stepped.failures:
            position = Position(rows.front, int(rows.offsets[failure.index]))
            if not self._tolerate:
                raise MessageRefused(source, position, failure)
            timestamp = int(rows.timestamps[failure.index])
            feed.outputs.append(dead_letter(source, position, timestamp, failure, rows))
        self._pass_on(source, stepped.batch, feed)
        return feed.outputs

    def feed(self, vertex: int, batch: Batch) -> list[Output]:
        """Take records of an exchange that this level receives.

        Raises:
            UserError: a user's function failed, and the flow names no dead letters.
        """
        feed = _Feed(None, [])
        self._pass_on(self.plan.vertices[vertex], batch, feed)
        return feed.outputs

    def _pass_on(self, vertex: Vertex, batch: Batch, feed: _Feed) -> None:
        """Give the records that came out of a vertex to all that take them."""
        for child in self._children[vertex.id]:
            if len(batch) == 0:
                return
            if child.id in self._operators:
                stepped = self._operators[child.id].apply(batch, self._tolerate)
                self._bury(child, batch, stepped.failures, feed)
                self._pass_on(child, stepped.batch, feed)
                continue
            stepped = as_columns(batch, self._tolerate)
            self._bury(vertex, batch, stepped.failures, feed)
            batch = stepped.batch
            if len(batch) == 0:
                return
            if child.id in self._exchanges:
                feed.outputs.append(Exchange(child.id, self._exchanges[child.id].assign(batch)))
            else:
                self._deliver(child, batch, feed)

    def _deliver(self, vertex: Vertex, batch: Batch, feed: _Feed) -> None:
        sink = self._sinks[vertex.id]
        keys, values, lanes = sink.keys(batch), sink.values(batch), sink.lanes(batch)
        feed.outputs.append(Deliver(vertex.id, keys, values, batch.meta.timestamp, lanes, batch))

    def _bury(self, vertex: Vertex, batch: Batch, failures: Sequence[Failure], feed: _Feed) -> None:
        """Make dead letters of failures, or raise the first one."""
        stops = not self._tolerate or isinstance(vertex.step, MapBatches)
        for failure in failures:
            position = batch.meta.position(failure.index)
            if stops:
                raise UserError(vertex, position, failure)
            timestamp = int(batch.meta.timestamp[failure.index])
            feed.outputs.append(dead_letter(vertex, position, timestamp, failure, feed.rows))


@dataclass(frozen=True, slots=True)
class _Feed:
    """One call's input, where it is messages, and what has come of it so far."""

    rows: SourceRows | None
    outputs: list[Output]
