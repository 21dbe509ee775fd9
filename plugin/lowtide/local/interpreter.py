"""A single-threaded run of a plan: one message after the other in the order of their labels, each depth first.

So every vertex sees records in the order (tick, front, sequence, child path), which the run asserts. It shares schemas,
formats and failure texts with the workers, but not the code that carries batches and repairs orders. It takes every
record through its columns where a worker would, so that a function sees what it sees there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.operators.faults.failure import Dead, Failure, as_json, astray, failed_at, unreadable, unwritable
from lowtide.core.operators.faults.watch import record_watch
from lowtide.core.operators.joins.pairing import Pairing
from lowtide.core.operators.order.keys import key_of
from lowtide.core.operators.order.order import FIRST_TURN, delivered_ms
from lowtide.core.operators.plain.exchange import front_unit
from lowtide.core.operators.plain.loop import key_changed, key_refused, misfit, too_many_turns
from lowtide.core.operators.plain.per_record import not_bool
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.steps import steps
from lowtide.flow.steps.clocks import Sighted
from lowtide.flow.steps.steps import (
    Again,
    Ask,
    Clock,
    Join,
    JoinAsof,
    JoinTable,
    Loop,
    Read,
    Scan,
    Split,
    Step,
    Substream,
    TimedScan,
    WindowBy,
    Write,
)
from lowtide.flow.time.moments import moment
from lowtide.local.asking import Answering, Coming, Later, answered
from lowtide.local.calls import Failed, call, called
from lowtide.local.items import Item, Message, Order
from lowtide.local.joins import ROWS, AsofPairs, Pairs, Rows
from lowtide.local.plain_records import is_plain
from lowtide.local.state import KEPT, Scanned
from lowtide.local.timers import Struck, Substreamed, TimedScanned
from lowtide.local.windows import OnTime, TimedWindows
from lowtide_snapshots.errors import KeyRefused
from lowtide_snapshots.keys.hashing import hash_unit


@dataclass(frozen=True, slots=True)
class _Way:
    """The next thing to do: an item enters a vertex at a port or, without a port, has come out of it."""

    vertex: Vertex
    port: int | None
    item: Item


OnCall = Callable[[Vertex, object, object], None]
"""Called with a step, its function's record, and the results with the state after it; None if it failed."""


Clocked = dict[int, TimedWindows | Pairs | TimedScanned | Coming]
"""By vertex what gives records that no other record causes at once."""


class Run:
    """One run of a plan.

    Attributes:
        written: The records of each sink, in order, by its vertex.
        dead: The dead letters, in order.
    """

    def __init__(
        self,
        plan: Plan,
        on_call: OnCall | None = None,
        *,
        until: int | None = None,
        looks_ahead: bool = True,
        on_time: OnTime | None = None,
        dead: list[Dead] | None = None,
        answering: Answering | None = None,
    ) -> None:
        """Begin a run.

        Args:
            plan: The plan.
            on_call: Called with each call of a function.
            until: The last tick that time reaches; by default the clock goes on until nothing is due.
            looks_ahead: See `TimedWindows`.
            on_time: See `TimedWindows`.
            dead: Takes dead letters; by default a list of the run's own.
            answering: Answers calls; by default their own functions do.
        """
        self._until = until
        self._answering = answering
        self._on_call = on_call
        self.written: dict[int, list[Item]] = {vertex.id: [] for vertex in plan.sinks()}
        self.dead: list[Dead] = [] if dead is None else dead
        self._plan = plan
        self._children = [plan.children(vertex.id) for vertex in plan.vertices]
        self._newest: dict[int, Order] = {}
        self._turning: dict[int, list[Item]] = {}
        """By head of a loop with a `key_by` in its body: the items that go round again, after all of this turn."""
        kept = (vertex for vertex in plan.vertices if type(vertex.step) in KEPT)
        self._kept = {vertex.id: KEPT[type(vertex.step)](plan, vertex) for vertex in kept}
        self._timed = {
            vertex.id: TimedWindows(plan, vertex, looks_ahead=looks_ahead, on_time=on_time)
            for vertex in plan.those(WindowBy)
        }
        self._pairs: dict[int, Pairs] = {
            vertex.id: PAIRED[type(vertex.step)](plan, vertex, looks_ahead=looks_ahead, on_time=on_time)
            for vertex in plan.those(Join)
        }
        self._coming = {vertex.id: Coming() for vertex in plan.those(Ask) if vertex.step.order == "answer"}
        self._tables = {vertex.id: Rows(plan, vertex) for vertex in plan.those(JoinTable)}
        self._watches = {vertex.id: record_watch(vertex) for vertex in plan.vertices}
        self._scanned = {
            vertex.id: SCANNED.get(type(vertex.step), Scanned)(plan, vertex) for vertex in plan.those(Scan)
        }
        self._timers = {id_: scanned for id_, scanned in self._scanned.items() if isinstance(scanned, TimedScanned)}

    def begin(self, vertex: Vertex, key: tuple[Any, ...], state: object) -> None:
        """Give a scan an initial state for a key, as from a snapshot (errors: FlowError)."""
        self._scanned[vertex.id].begin(key, state)

    def read(self, source: Vertex[Read], order: Order, message: Message) -> None:
        """Take a message of a source through the flow."""
        self._come_to(order)
        self._sign(source, Item(None, order, message))
        format_ = source.step.source.format
        decoded = format_.decode(message.rows)
        for _, reason in decoded.failures:
            self._fail(source, Item(None, order, message), unreadable(0, message.value, format_, source.gives, reason))
        for record in decoded.rows:
            self._walk(source, Item(record, order, message))

    def take(self, source: Vertex[Read], item: Item) -> None:
        """Take a record of a source through the flow."""
        self._come_to(item.order)
        self._sign(source, item)
        self._walk(source, item)

    def _sign(self, source: Vertex[Read], item: Item) -> None:
        """Show a message, readable or not, to clocks."""
        signs = self._plan.signs_of(source)
        if signs:  # A label that no job has capped yet may be no moment at all.
            at = moment(item.order.tick * self._plan.slack_ms * 1_000)
            for sign in signs:
                self._walk(sign, item.becomes(Sighted(sign.step.striking.name, at)))

    def finish(self) -> None:
        """Advance time after the last record."""
        self._come_to(None)

    def _come_to(self, order: Order | None) -> None:
        """Run all timers before a place in the order; before None all there are."""
        if order is None and self._until is None:
            for timer in self._timers.values():
                timer.time_ends()
        clocked: Clocked = {**self._timed, **self._pairs, **self._timers, **self._coming}
        while clocked:
            dues = [(place, id_) for id_, timed in clocked.items() if (place := timed.next) is not None]
            if not dues:
                return
            place, id_ = min(dues)
            if (order is not None and place > order) or (self._until is not None and place.tick > self._until):
                return
            self._fire(self._plan.vertices[id_], limited=order is None and self._until is None)

    def _fire(self, vertex: Vertex, *, limited: bool) -> None:
        """Take what is due first at a step through the rest of the flow."""
        id_ = vertex.id
        if id_ in self._pairs:
            for item, left, right in self._pairs[id_].fire():
                self._go(self._paired(vertex, item, left, right, self._pairs[id_].pairing))
            return
        if id_ in self._coming:
            self._complete(vertex, *self._coming[id_].pop())
            return
        fired = self._timed[id_].fire() if id_ in self._timed else self._timers[id_].fire(limited=limited)
        for item, failure in fired:
            if failure is None:
                self._walk(vertex, item)
            else:
                self._fail(vertex, item, failure)

    def _complete(self, vertex: Vertex[Any], item: Item, answer: Any) -> None:
        """Take an answer that has come through the rest of the flow."""
        try:
            item = answered(vertex, item, answer)
        except Failed as failed:
            self._fail(vertex, item, failed.failure)
        else:
            self._walk(vertex, item)

    def _walk(self, vertex: Vertex, item: Item) -> None:
        """Take an item that came out of a vertex through the rest of the flow."""
        self._go([_Way(vertex, None, item)])

    def _go(self, ways: list[_Way]) -> None:
        """Go all ways to their ends, with a stack instead of calls, as loops may be deep."""
        while ways:
            way = ways.pop()
            ahead = self._behind(way.vertex, way.item) if way.port is None else self._into(way, way.port)
            ways += reversed(ahead)

    def _round(self, head: Vertex, item: Item) -> None:
        """Take a record that has entered a loop, and all that is made of it, through the loop turn by turn."""
        turn = [item.child(head.loop_mark).child(FIRST_TURN)]
        while turn:
            after = self._turning[head.id] = []
            for each in turn:
                self._go([_Way(head, None, each)])
            turn = [each.in_next_turn(head.loop_mark) for each in after]

    def _behind(self, vertex: Vertex, item: Item) -> list[_Way]:
        """Return the ways of a record that came out of a vertex; if several, each appends its number to the path."""
        children = self._children[vertex.id]
        ways = []
        for number, child in enumerate(children, 1):
            # The first step that checks finds a record that does not fit its type; the steps after it do not see it.
            if (child.is_exchange or child.step.looks) and not self._is_sound(vertex, item):
                break
            branch = item if len(children) == 1 else item.child(number)
            ways.append(_Way(child, child.parents.index(vertex.id), branch))
        return ways

    def _into(self, way: _Way, port: int) -> Sequence[_Way]:
        """Return the ways of what a vertex makes of a record."""
        vertex, item = way.vertex, way.item
        newest = self._newest.get(vertex.id)
        assert newest is None or newest < item.order, f"{vertex.name} sees {item.order} after {newest}"
        assert len(item.order.child) <= vertex.depth, f"{vertex.name} sees {item.order}, deeper than {vertex.depth}"
        self._newest[vertex.id] = item.order
        pairs = PAIRS.get(type(vertex.step))
        if pairs is not None:
            return pairs(self, vertex, port, item)
        scanned = self._scanned.get(vertex.id)
        caller = (scanned.broadcast if scanned is not None and port == 1 else None) or vertex
        watch = self._watches[caller.id]
        looked = None if watch is None else watch.look([item.record])
        failure, ways = None, list[_Way]()
        try:
            ways = TAKES[type(vertex.step)](self, vertex, port, item)
        except Failed as failed:
            failure = failed.failure
        if watch is not None and not watch.same([item.record], looked):
            raise watch.changed(item.record, item.message.position)
        if self._on_call is not None and hasattr(caller.step, "function"):
            state = None if scanned is None else scanned.state(item, port)
            if ways and isinstance(vertex.step, Split):
                state = ways[0].vertex.name  # Its result is the side that it takes.
            self._on_call(caller, item.record, None if failure else (state, [way.item.record for way in ways]))
        if failure is not None:
            self._fail(caller, item, failure)
        return ways

    def _windowed(self, vertex: Vertex[WindowBy], _port: int, item: Item) -> list[_Way]:
        """Return what a window gives at once: late records unchanged, and updates."""
        is_late, results = self._timed[vertex.id].take(item)
        late = self._plan.late_of(vertex.id) if is_late else None
        if vertex.step.emit == "update":
            item = item.child(1)  # Its results, if any, are numbered from 2.
        return [_Way(each, None, item) for each in (late,) if each] + _out(vertex, results)

    def _with_row(self, vertex: Vertex[JoinTable], port: int, item: Item) -> list[_Way]:
        """Return the result of a record and its key's row; a new row gives nothing."""
        rows = self._tables[vertex.id]
        if port == ROWS:
            rows.put(item)
            return []
        row = rows.of(item)
        if row is None and rows.inner:
            return []
        return self._paired(vertex, item, item.record, row, rows.pairing)

    def _joined(self, vertex: Vertex[Join], port: int, item: Item) -> list[_Way]:
        """Return the results of the pairs that a record makes; a late record unchanged."""
        join = self._pairs[vertex.id]
        pairs = join.take(port, item)
        if pairs is None:
            late = self._plan.late_of(vertex.id, port)
            return [] if late is None else [_Way(late, None, item)]
        return [way for place, left, right in pairs for way in self._paired(vertex, place, left, right, join.pairing)]

    def _paired(self, vertex: Vertex, item: Item, left: Any, right: Any, pairing: Pairing) -> list[_Way]:
        """Return what a join's function makes of a pair, at the place of the item for whose record it is called."""
        out, failure = pairing(item.record, left, right, item.message.position)
        if self._on_call is not None:
            self._on_call(vertex, (left, right), None if failure else (None, [out]))
        if failure is None:
            return [_Way(vertex, None, item.becomes(out))]
        self._fail(vertex, item, failure)
        return []

    def _write(self, vertex: Vertex[Write], _port: int, item: Item) -> list[_Way]:
        failure = unwritable(0, item.record, vertex.step.sink)
        if failure is not None:
            raise Failed(item.record, failure.error)
        failure = astray(0, item.record, vertex.step.sink, item.unit, self._plan.units)
        if failure is not None:
            self._fail(vertex, item, failure)
            return []
        self.written[vertex.id].append(item)
        return []

    def _ask(self, vertex: Vertex[Ask], _port: int, item: Item) -> list[_Way]:
        assert self._answering is not None, "somebody answers"
        answer = self._answering(vertex, item)
        if isinstance(answer, Later):
            self._coming[vertex.id].add(item, answer)
            return []
        return _out(vertex, [answered(vertex, item, answer)])

    def _scan(self, vertex: Vertex[Scan], port: int, item: Item) -> list[_Way]:
        if port == 0:
            return _out(vertex, self._scanned[vertex.id].take(item))
        self._scanned[vertex.id].see(item)
        return []

    def _followed(self, vertex: Vertex[Substream], _port: int, item: Item) -> list[_Way]:
        """Return the record if it opens a substream, and the end of the one that it closes."""
        scanned = self._scanned[vertex.id]
        assert isinstance(scanned, Substreamed), "a substream is followed"
        ends = scanned.take(item)
        begun = self._plan.late_of(vertex.id) if scanned.opened else None
        return [_Way(each, None, item) for each in (begun,) if each] + _out(vertex, ends)

    def _keep(self, vertex: Vertex, _port: int, item: Item) -> list[_Way]:
        return _out(vertex, self._kept[vertex.id].take(item))

    def _enter(self, vertex: Vertex[Loop], _port: int, item: Item) -> list[_Way]:
        if not self._plan.crosses(vertex):
            return _out(vertex, [item.child(vertex.loop_mark)])
        self._round(vertex, item)
        return []

    def _exchange(self, vertex: Vertex, _port: int, item: Item) -> list[_Way]:
        return _out(vertex, [self._exchanged(vertex, item)])

    def _exchanged(self, vertex: Vertex, item: Item) -> Item:
        """Return the record as it comes out of an exchange; of a broadcast one unit's copy, as all are equal."""
        item = _carried(vertex, item)
        if vertex.step.to_all:
            return item.into(0).child(1)
        if vertex.step.by:
            return item.into(hash_unit(key_of(vertex.step.by, item.record), self._plan.units))
        if item.unit >= 0:
            return item
        return item.into(front_unit(item.order.front, self._plan.units))

    def _split(self, vertex: Vertex[Split], _port: int, item: Item) -> list[_Way]:
        """Return the side of a split that takes a record."""
        says = called(vertex.step.function, item.record)
        fault = not_bool(says)
        if fault is not None:
            raise Failed(item.record, fault)
        number = 1 if says else 2
        return [_Way(self._children[vertex.id][number - 1], 0, item.child(number))]

    def _again(self, tail: Vertex[Again], _port: int, item: Item) -> list[_Way]:
        """Return the ways of a record from a loop's tail: on, or back to the head, at once or in the next turn."""
        step = tail.step
        again = called(step.function, item.record)
        fault = not_bool(again)
        if fault is None and not again:
            return [_Way(tail, None, item)]
        assert tail.back is not None
        head = self._plan.vertices[tail.back]
        feedback = self._plan.feedback_of(tail)
        turns = item.turns(head.loop_mark) if feedback else item.order.child.count(head.loop_mark)
        if fault is None and turns >= step.limit_turns:
            fault = too_many_turns(step.limit_turns)
        elif fault is None:
            moved = None if feedback else self._leaves_unit(self._plan.key_of(head), item)
            fault = moved or misfit(tail, item.record)
        if fault is not None:
            raise Failed(item.record, fault)
        if feedback is None:
            return [_Way(head, 0, _carried(tail, item))]
        self._turning[head.id].append(self._exchanged(feedback, item))
        return []

    def _leaves_unit(self, columns: Sequence[str], item: Item) -> str | None:
        """Return the fault of a record's key on its way back to a loop's head."""
        try:
            unit = hash_unit(key_of(columns, item.record), self._plan.units)
        except KeyRefused as refused:
            return key_refused(refused)
        return None if unit == item.unit else key_changed(columns)

    def _is_sound(self, vertex: Vertex, item: Item) -> bool:
        if is_plain(vertex.gives, item.record):
            return True
        fault = schema_of(vertex.gives).fault(item.record)
        if fault is not None:
            self._fail(vertex, item, Failure(0, item.record, fault.what))
        return fault is None

    def _fail(self, vertex: Vertex, item: Item, failure: Failure) -> None:
        """Make a dead letter of a failure, or raise it."""
        message, timestamp = item.message, delivered_ms(item.order.tick, self._plan.slack_ms)
        if self._plan.dead_letters is None or failure.way_out:
            error = failed_at(vertex, message.position, failure)
            error.message_key = message.key if vertex.level == 0 else None
            error.name_key(self._plan)
            error.name_clock(self._plan)
            raise error
        original: tuple[bytes | None, bytes | None, bytes | None] = (None, as_json(failure.record), None)
        if vertex.level == 0:
            original = (message.key, message.value, message.headers or None)
        self.dead.append(Dead(vertex.name, message.position, timestamp, failure.error, *original))


PAIRED: dict[type[Step], type[Pairs]] = {Join: Pairs, JoinAsof: AsofPairs}
"""A join's state."""

SCANNED: dict[type[Step], type[Scanned]] = {TimedScan: TimedScanned, Substream: Substreamed, Clock: Struck}
"""A scan's data besides its states."""


def _out(vertex: Vertex, items: Iterable[Item]) -> list[_Way]:
    """Return the ways of what has come out of a vertex."""
    return [_Way(vertex, None, item) for item in items]


def _as_it_is(_run: Run, vertex: Vertex, _port: int, item: Item) -> list[_Way]:
    return _out(vertex, [item])


def _call(_run: Run, vertex: Vertex, _port: int, item: Item) -> list[_Way]:
    return _out(vertex, call(vertex, item))


TAKES: dict[type[Step], Callable[[Run, Vertex[Any], int, Item], list[_Way]]] = {
    steps.Map: _call,
    steps.FlatMap: _call,
    steps.Filter: _call,
    steps.MapBatches: _call,
    steps.Ask: Run._ask,
    steps.Split: Run._split,
    steps.Side: _as_it_is,
    steps.Merge: _as_it_is,
    steps.Connect: _as_it_is,
    steps.Table: _as_it_is,
    steps.KeyBy: Run._exchange,
    steps.Relay: Run._exchange,
    steps.Broadcast: Run._exchange,
    steps.Scan: Run._scan,
    steps.FlatScan: Run._scan,
    steps.TimedScan: Run._scan,
    steps.Substream: Run._followed,
    steps.Reduce: Run._scan,
    steps.Aggregated: Run._scan,
    steps.Ended: Run._scan,
    steps.Clock: Run._scan,
    steps.WindowBy: Run._windowed,
    steps.WhenDone: Run._windowed,
    steps.Loop: Run._enter,
    steps.Again: Run._again,
    steps.Write: Run._write,
    **dict.fromkeys(KEPT, Run._keep),
}
"""The handler of a record by kind of step (errors: Failed)."""

PAIRS: dict[type[Step], Callable[[Run, Vertex[Any], int, Item], list[_Way]]] = {
    steps.JoinTable: Run._with_row,
    steps.Join: Run._joined,
    steps.JoinAsof: Run._joined,
}
"""The same for steps whose function takes two records, and whose calls are not those of one record."""


def _carried(vertex: Vertex, item: Item) -> Item:
    """Return the record of an item as it comes back from columns."""
    if is_plain(vertex.gives, item.record):
        return item
    schema = schema_of(vertex.gives)
    return item.becomes(schema.rows(schema.columns([item.record]))[0])
