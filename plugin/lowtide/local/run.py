"""Local runs of a flow: `Flow.run_locally`, and the reference that every job is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.operators.faults.failure import Dead, as_json
from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.order import Position, delivered_ms
from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.parameters import calling
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.columns import columns_of
from lowtide.flow.schema.headers import pack_headers
from lowtide.flow.schema.message import Message as Given
from lowtide.flow.schema.stamped import Stamped
from lowtide.flow.steps.graph import DEAD_LETTERS, FlowGraph
from lowtide.flow.steps.steps import Read
from lowtide.flow.time.moments import micros_of, tick_due
from lowtide.local.asking import Asked, Kept, from_kept
from lowtide.local.beginnings import States, begin_with
from lowtide.local.interpreter import OnCall, Run
from lowtide.local.items import Item, Message, Order
from lowtide.local.windows import OnTime
from lowtide_tracker.floors import Floor

Inputs = Mapping[str, Iterable[object] | Mapping[int, Iterable[object]]]
"""By source its records, or its partitions' records by their numbers."""
ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)

__all__ = ["Delivered", "Message", "Order", "by_front", "label_log", "run_log", "run_plan", "run_records"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message to a sink.

    Attributes:
        lane: Its slice of the output.
        key: The message's key, None for none.
        value: The message's value, None for Kafka's tombstone.
        timestamp: The start of its tick, in ms.
        order: The order key of the record, without its trace.
        headers: The message's headers, in order.
        unit: The hash unit of the last exchange.
    """

    lane: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    order: Order
    headers: tuple[tuple[str, str | bytes | None], ...] = ()
    unit: int = 0


def run_records(
    flow: FlowGraph,
    inputs: Inputs,
    until: datetime | None = None,
    states: States | None = None,
    answers: Mapping[str, Callable[..., object]] | None = None,
) -> dict[str, list[object]]:
    """Run a flow on records or messages' values per source; return records per sink, failed ones as "dead-letters".

    The records of a source keep the order given, sources follow each other; `Stamped` ones go by their log time. Then
    time goes on, to `until` or to its end. A source may be given by partition; `states` are the steps' initial states,
    and `answers` the functions that take the place of those of calls.

    Raises:
        FlowError: the flow does not fit together, or an input or state does not fit its source or step.
        MessageRefused, UserError: as in a job, if the flow has no dead letters; always if a function changes a record
            or a state in place, or returns a state that cannot be saved.
    """
    return run_plan(compile_flow(flow, parallelism=1), inputs, until=until, states=states, answers=answers)


def run_plan(
    plan: Plan,
    inputs: Inputs,
    on_call: OnCall | None = None,
    *,
    until: datetime | None = None,
    states: States | None = None,
    dead: list[Dead] | None = None,
    answers: Mapping[str, Callable[..., object]] | None = None,
) -> dict[str, list[object]]:
    """Do `run_records` for a plan; `on_call` gets each function call, `dead` each dead letter, of failed runs too."""
    sources = {vertex.name: vertex for vertex in plan.sources()}
    unknown = sorted(set(inputs) - set(sources))
    if unknown:
        raise FlowError(f"the flow has no source {', '.join(unknown)}; it reads {', '.join(sources)}")
    came: list[tuple[Order, Vertex[Read], object]] = []
    front = 0
    for vertex in by_front(plan):
        for records in _partitions(inputs.get(vertex.name, ())):
            came += [(order, vertex, record) for order, record in _labelled(front, records, plan.slack_ms)]
            front += 1
    came.sort(key=itemgetter(0))
    last = None if until is None else tick_due(micros_of(until), plan.slack_ms * 1_000)
    # Without log times no record can be ahead of them.
    looks_ahead = any(order.tick for order, _, _ in came)
    with Asked(plan, answers or {}) as asked, calling():
        run = Run(plan, on_call, until=last, looks_ahead=looks_ahead, dead=dead, answering=asked)
        begin_with(run, plan, states or {})
        for order, vertex, record in came:
            _take(run, vertex, order, record)
        run.finish()
    written: dict[str, list[object]] = {
        vertex.name: [item.record for item in run.written[vertex.id]] for vertex in plan.sinks()
    }
    return {**written, DEAD_LETTERS: list(run.dead)} if plan.dead_letters is not None else written


def by_front(plan: Plan) -> list[Vertex[Read]]:
    """Return the sources in the order in which `run_plan` numbers their partitions: preloaded ones first."""
    return sorted(plan.sources(), key=lambda vertex: not _is_preloaded(vertex))


def _partitions(given: Iterable[object] | Mapping[int, Iterable[object]]) -> list[Iterable[object]]:
    return [given[number] for number in sorted(given)] if isinstance(given, Mapping) else [given]


def _is_preloaded(vertex: Vertex[Read]) -> bool:
    return vertex.step.source.preload


def _labelled(front: int, records: Iterable[object], slack_ms: int) -> list[tuple[Order, object]]:
    """Return the records of a source with their places: labels never go back; without a stamp log time is 0."""
    found: list[tuple[Order, object]] = []
    for sequence, each in enumerate(records):
        at = each.at if isinstance(each, Stamped) else each.timestamp if isinstance(each, Given) else None
        tick = 0 if at is None or at.tzinfo is None else micros_of(at) // (slack_ms * 1_000)
        label = max(tick, found[-1][0].tick) if found else tick
        found.append((Order(label, front, sequence), each.record if isinstance(each, Stamped) else each))
    return found


def _take(run: Run, vertex: Vertex[Read], order: Order, record: object) -> None:
    """Take a record, or its bytes, as if read from the source."""
    position = Position(order.front, order.sequence)
    if isinstance(record, bytes):
        record = Given(value=record)
    if isinstance(record, Given):
        run.read(vertex, order, _message(vertex, position, record))
    elif type(record) is vertex.gives:
        run.take(vertex, Item(record, order, Message(position, 0, None, as_json(record))))
    else:
        expected = f"{vertex.gives.__qualname__}, bytes or Message"
        raise FlowError(f'source "{vertex.name}" takes {expected}, found {type(record).__qualname__}: {record!r}')


def _message(vertex: Vertex[Read], position: Position, given: Given) -> Message:
    stamp = 0
    if given.timestamp is not None:
        if given.timestamp.tzinfo is None:
            raise FlowError(f'source "{vertex.name}": the timestamp {given.timestamp} of a message has no time zone')
        stamp = (given.timestamp - ORIGIN) // timedelta(milliseconds=1)
    headers = pack_headers(given.headers)
    return Message(position, stamp, given.key, given.value, headers, vertex.step.source.topic)


def run_log(
    plan: Plan,
    log: Mapping[str, Iterable[Message]],
    floors: Iterable[Floor] = (),
    until: int | None = None,
    on_time: OnTime | None = None,
    preloaded: Mapping[int, int] | None = None,
    kept: Kept | None = None,
    answers: Mapping[str, Callable[..., object]] | None = None,
) -> tuple[dict[str, list[Delivered]], list[Dead]]:
    """Run a plan on the messages of each source, in the order of their labels; the order given does not matter.

    Args:
        plan: The plan.
        log: The messages of each source by its name; offsets are unique in a front. Sources that read one topic have
            the same messages in the same fronts.
        floors: The label decisions that a run has stored.
        until: The last tick that the run's time reaches; by default time goes on until nothing is due.
        on_time: Called with each record that reaches a window of event time; see `OnTime`.
        preloaded: The end of the preloaded messages by front.
        kept: The answers of calls that the run has kept; the others are asked again.
        answers: By the name of a call the function that answers instead of its own.

    Returns:
        The messages to each sink, by its name, in order, and the dead letters, in order. A job must reproduce the
        sequence of every lane.
    """
    messages = [(vertex, message) for vertex in plan.sources() for message in log.get(vertex.name, ())]
    labels = label_log(dict.fromkeys(message for _, message in messages), floors, plan.slack_ms, preloaded)
    paths = {vertex.id: (branch,) if (branch := plan.branch_of(vertex)) else () for vertex in plan.sources()}
    ordered = []
    for vertex, message in messages:
        front, sequence = message.position.front, message.position.sequence
        ordered.append((Order(labels[message.position], front, sequence, paths[vertex.id]), vertex, message))
    with Asked(plan, answers or {}) as asked, calling():
        run = Run(plan, until=until, on_time=on_time, answering=from_kept(kept or {}, asked))
        for order, vertex, message in sorted(ordered, key=itemgetter(0)):
            run.read(vertex, order, message)
        run.finish()
    return {
        vertex.name: _delivered(plan, sink, run.written[vertex.id]) for vertex, sink in plan.kafka_sinks()
    }, run.dead


def label_log(
    messages: Iterable[Message],
    floors: Iterable[Floor],
    slack_ms: int,
    preloaded: Mapping[int, int] | None = None,
) -> dict[Position, int]:
    """Return the label of every message (R1): per front, the largest of the label before, its own tick, and the floors.

    A message's own tick is that of its timestamp, or of the cap at its very offset. A preloaded message has none: it
    has the label at which the front opened.
    """
    ends = preloaded or {}
    floors = list(floors)
    caps = {Position(floor.front, floor.offset): floor.tick for floor in sorted(floors) if floor.cap}
    labels: dict[Position, int] = {}
    newest: dict[int, int] = {}
    waiting = sorted((floor for floor in floors if not floor.cap), reverse=True)
    for message in sorted(messages, key=lambda message: (message.position.front, message.position.sequence)):
        position = message.position
        assert position not in labels, f"two messages are at {position}"
        while waiting and (waiting[-1].front, waiting[-1].offset) <= (position.front, position.sequence):
            floor = waiting.pop()
            newest[floor.front] = max(newest.get(floor.front, NO_TICK), floor.tick)
        is_preloaded = position.sequence < ends.get(position.front, 0)
        own = 0 if is_preloaded else caps.get(position, message.timestamp // slack_ms)
        labels[position] = newest[position.front] = max(newest.get(position.front, NO_TICK), own)
    return labels


def _delivered(plan: Plan, sink: KafkaSink, items: Iterable[Item]) -> list[Delivered]:
    """Return the messages of a topic."""
    lanes = plan.lane_of_unit().tolist()
    column, columns = sink.message_column, columns_of(sink.format.record)
    delivered = []
    for item in items:
        key = None if column is None else _key_bytes(getattr(item.record, column))
        value = sink.format.encode([item.record])[0]
        timestamp, headers = delivered_ms(item.order.tick, plan.slack_ms), tuple(columns.headers(item.record) or ())
        delivered.append(Delivered(lanes[item.unit], key, value, timestamp, item.order, headers, item.unit))
    return delivered


def _key_bytes(value: object) -> bytes | None:
    """Write a key as a message's key: text in UTF-8, bytes as they are, numbers in decimal digits."""
    stored = plain(value)
    return stored if stored is None or isinstance(stored, bytes) else str(stored).encode()
