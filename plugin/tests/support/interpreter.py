"""A second interpreter of flows that shares nothing with Lowtide but the words that users write.

It stands in for the package: `Flow`, `kafka`, `json`, `raw`, `Raw` and `main` are its own, and so are labels, order,
lanes, JSON and dead letters, each made after the documentation (`docs/flows.md`, *Partitions* in `docs/deployment.md`,
`snapshots/README.md`, *The child path* in `docs/decisions/005-order-and-repair.md`). Where Lowtide walks through a plan
depth first, one message after the other, this puts all records into one queue and always takes the first in the order:
no record comes of a later one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import heapq
import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
from interpreter_bytes import (
    ORIGIN,
    dumped,
    marked,
    normal,
    record_of,
    unit_of,
    unit_of_front,
    whole_bytes,
    writable,
    written,
)
from interpreter_joins import AsofNears, Nears
from interpreter_windows import (
    EPOCH,
    Bags,
    Kind,
    Result,
    Stamped,
    Window,
    aggregating,
    applying,
    calendar,
    folding,
    reducing,
    session,
    sliding,
    stamped,
    tumbling,
)

__all__ = ["Stamped", "Window", "calendar", "session", "sliding", "stamped", "tumbling"]

CLOCK = -1
"""The port at which the clock calls."""

LOOP = 1
"""What a pass through a loop appends to the path: any number would do, as nothing else comes of such a record."""


@dataclasses.dataclass(frozen=True)
class Raw:
    """Records of `raw()`."""

    key: bytes | None
    value: bytes | None


@dataclasses.dataclass(frozen=True)
class Moment:
    """A clock's output."""

    clock: str
    at: datetime


class Kafka(NamedTuple):
    """A topic, the type of its records, the column that is a message's key, and whether it stands before all others."""

    topic: str
    record: Any
    key: str | None = None
    preload: bool = False


class EventTime(NamedTuple):
    """A column of event time, how long log time waits for it, and how far ahead it may be; no column is log time."""

    column: str | None
    wait: timedelta = timedelta(0)
    ahead: timedelta = timedelta(days=1)


class Came(NamedTuple):
    """A message of a source: its front and offset, the log's timestamp in ms, key and value, and what else it has."""

    front: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = ""
    partition: int = 0


class Said(NamedTuple):
    """A floor or a cap."""

    front: int
    offset: int
    tick: int
    cap: bool


class Letter(NamedTuple):
    """A dead letter: the step that failed, where the message stands, and what is kept of it."""

    step: str
    front: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Record(NamedTuple):
    """A record on its way; `unit` is None before the first exchange."""

    tick: int
    path: tuple[int, ...]
    value: Any
    message: Came
    unit: int | None = None
    turns: int = 0
    turning: int = 0
    """Where in the path the turn of the loop stands that it is in, if its key changes there; then it counts from 1."""

    @property
    def place(self) -> tuple[Any, ...]:
        return self.tick, self.message.front, self.message.offset, self.path

    def below(self, number: int) -> Record:
        return self._replace(path=(*self.path, number))


class Failed(Exception):
    """A function failed, or gave what it must not; the value is what the dead letter is made of."""


class Step:
    """One step of a flow."""

    def __init__(self, kind: str, name: str, parents: Sequence[Step], **rest: Any) -> None:
        self.kind, self.name, self.parents, self.rest = kind, name, list(parents), rest
        self.takers: list[Step] = []
        self.head: Step | None = None
        self.crosses = False
        """Of a loop: whether what goes round it changes its key."""
        for parent in parents:
            parent.takers.append(self)
        self.level: int = max((parent.level for parent in parents), default=0) + (kind in ("key_by", "broadcast"))
        self.keys: tuple[str, ...] = rest["columns"] if kind == "key_by" else parents[0].keys if parents else ()
        self.gives: Any = parents[0].gives if parents else None


class Stream:
    """A step's output."""

    def __init__(self, flow: Flow, step: Step) -> None:
        self._flow, self._step = flow, step

    def _then(self, kind: str, name: str | None, *also: Stream, **rest: Any) -> Stream:
        step = Step(kind, name or "", [self._step, *(each._step for each in also)], **rest)
        self._flow.steps.append(step)
        return Stream(self._flow, step)

    def _calls(self, kind: str, function: Callable[..., Any], name: str | None, **rest: Any) -> Stream:
        return self._then(kind, name or function.__name__, function=function, **rest)

    def map(self, function: Any, *, name: str | None = None, returns: Any = None) -> Stream:
        stream = self._calls("map", function, name)
        stream._step.gives = returns or typing.get_type_hints(function)["return"]
        return stream

    def call(self, name: str, function: Any, **_: Any) -> Stream:
        """A step that asks; here the function answers at once."""
        stream = self if self._step.level else self._then("key_by", f"{name}/exchange", columns=())
        stream = stream._calls("call", function, name)
        stream._step.gives = typing.get_type_hints(function)["return"]
        return stream

    def flat_map(self, function: Any, *, name: str | None = None, returns: Any = None) -> Stream:
        stream = self._calls("flat_map", function, name)
        stream._step.gives = returns or typing.get_args(typing.get_type_hints(function)["return"])[0]
        return stream

    def filter(self, function: Any, *, name: str | None = None) -> Stream:
        return self._calls("filter", function, name)

    def split(self, function: Any, *, name: str | None = None) -> tuple[Stream, Stream]:
        parted = self._calls("split", function, name)
        return parted._then("side", f"{parted._step.name}/true"), parted._then("side", f"{parted._step.name}/false")

    def map_batches(self, function: Any, returns: Any, *, name: str | None = None) -> Stream:
        stream = self._calls("map_batches", function, name, takes=self._step.gives)
        stream._step.gives = returns
        return stream

    def key_by(self, *columns: str, name: str | None = None) -> Stream:
        return self._then("key_by", name, columns=columns)

    def last(
        self, number: int, *, partial: bool = True, ttl: timedelta | None = None, name: str | None = None
    ) -> Stream:
        return self._then("last", name, number=number, partial=partial, ttl=ttl)

    def scan(
        self,
        name: str,
        function: Any,
        initial: Any,
        *,
        ttl: timedelta | None = None,
        broadcast: Stream | None = None,
        returns: Any = None,
    ) -> Stream:
        also = [] if broadcast is None else [broadcast]
        stream = self._then("scan", name, *also, function=function, initial=initial, ttl=ttl)
        stream._step.gives = returns or typing.get_args(typing.get_type_hints(function)["return"])[1]
        return stream

    def flat_scan(self, name: str, function: Any, initial: Any, **rest: Any) -> Stream:
        words = ("timer", "on_timer", "on_forgotten")
        timers: dict[str, Any] = {word: rest.pop(word) for word in words if word in rest}
        stream = self.scan(name, function, initial, **rest)
        stream._step.rest["flat"] = True
        stream._step.rest |= timers
        if rest.get("returns") is None:
            stream._step.gives = typing.get_args(stream._step.gives)[0]
        return stream

    def reduce(self, name: str, function: Any, *, ttl: timedelta | None = None) -> Stream:
        def both(result: Any, value: Any) -> Any:
            after = value if result is None else function(result, value)
            return after, after

        return self.scan(name, both, None, ttl=ttl, returns=self._step.gives)

    def aggregate(self, name: str, record: Any, /, *, ttl: timedelta | None = None, **columns: Any) -> Stream:
        """All records of the key so far, put together once more for each: no state but themselves."""
        keys = self._step.keys

        def made(values: tuple[Any, ...], value: Any) -> Any:
            values = (*values, value)
            wanted = {field.name for field in dataclasses.fields(record)}
            key = {column: getattr(value, column) for column in keys if column in wanted}
            return values, record(**key, **{label: column(values) for label, column in columns.items()})

        return self.scan(name, made, (), ttl=ttl, returns=record)

    def deduplicate(self, name: str, *, within: timedelta) -> Stream:
        return self._then("deduplicate", name, within=within)

    def substream(self, name: str, record: Any, /, *, opens: Any, closes: Any = None, idle: Any = None) -> Substreams:
        """A scan that keeps all records of an open substream, each with its log time."""
        keys = self._step.keys

        def end(kept: tuple[Any, ...], moment: datetime, closed_by: str) -> Any:
            values = {"begun": kept[0][1], "ended": moment, "count": len(kept), "closed_by": closed_by}
            values |= {column: getattr(kept[0][0], column) for column in keys}
            return record(**{field.name: values[field.name] for field in dataclasses.fields(record)})

        def follow(kept: tuple[Any, ...], value: Any, moment: datetime) -> Any:
            if not kept and not judged(opens, value):
                return (), []
            kept = (*kept, (value, moment))
            if closes is not None and judged(closes, value):
                return (), [end(kept, moment, "record")]
            return kept, []

        asks = {
            "timer": lambda kept: None if idle is None else kept[-1][1] + idle,
            "on_timer": lambda kept, moment: ((), [end(kept, moment, "idle")]),
        }
        return Substreams(self.flat_scan(name, follow, (), returns=record, **asks), self._step)

    def window(
        self,
        name: str,
        windows: Kind,
        *,
        time: EventTime | None = None,
        emit: str = "close",
    ) -> Windowed:
        column, wait, ahead = time or EventTime(None)
        rest = {"windows": windows, "time": column, "wait": wait, "ahead": ahead, "emit": emit}
        return Windowed(self._flow, self._then("window", name, **rest)._step)

    def table(self, name: str, *, deleted: str | None = None, ttl: timedelta | None = None) -> Stream:
        return self._then("table", name, deleted=deleted, ttl=ttl)

    def join_table(self, name: str, table: Stream, function: Any, *, how: str = "inner", returns: Any = None) -> Stream:
        stream = self._then("join_table", name, table, function=function, how=how)
        stream._step.gives = returns or typing.get_type_hints(function)["return"]
        return stream

    def join(
        self,
        name: str,
        other: Stream,
        function: Any,
        *,
        before: timedelta = timedelta(0),
        after: timedelta = timedelta(0),
        time: EventTime | tuple[EventTime, EventTime] | None = None,
        how: str = "inner",
        returns: Any = None,
    ) -> Joined:
        rest = {"before": before, "after": after, "how": how, **sides(time)}
        made = self._then("join", name, other, function=function, **rest)._step
        made.gives = returns or typing.get_type_hints(function)["return"]
        return Joined(self._flow, made)

    def join_asof(
        self,
        name: str,
        other: Stream,
        function: Any,
        *,
        time: EventTime | tuple[EventTime, EventTime],
        back: timedelta,
        how: str = "left",
        returns: Any = None,
    ) -> Joined:
        rest = {"before": back, "after": timedelta(0), "back": back, "how": how, **sides(time)}
        made = self._then("join_asof", name, other, function=function, **rest)._step
        made.gives = returns or typing.get_type_hints(function)["return"]
        return Joined(self._flow, made)

    def connect(self, *others: Stream) -> Stream:
        return self._then("connect", None, *others)

    def broadcast(self, name: str, function: Any, initial: Any) -> Stream:
        return self._then("broadcast", name, function=function, initial=initial)

    def merge(self, *others: Stream, name: str) -> Stream:
        return self._then("merge", name, *others)

    def loop(self, name: str, body: Any, again: Any, *, limit_turns: int) -> Stream:
        head = self._then("loop", name)
        before = len(self._flow.steps)
        tail: Stream = body(head)._then("again", name, function=again, limit=limit_turns)
        tail._step.head = head._step
        head._step.crosses = any(step.kind == "key_by" for step in self._flow.steps[before:])
        return tail

    def when_done(
        self,
        name: str,
        *,
        through: Stream | None = None,
        label: Any = None,
        order: str = "",
        keep: timedelta = timedelta(0),
    ) -> Stream:
        label = () if label is None else (label,) if isinstance(label, str) else tuple(label)
        stream = self._then("when_done", name, label=label, through=through and through._step)
        step = stream._step
        step.level = max(1, step.level + bool(label), 0 if through is None else through._step.level)
        return stream

    def when_begun(self, name: str, *, label: Any, keep: timedelta) -> Stream:
        columns = (label,) if isinstance(label, str) else label
        return self.key_by(*columns, name=f"{name}.by").deduplicate(name, within=keep)

    def write(self, name: str, sink: Kafka, *, on_commit: Any = None) -> None:
        self._then("write", name, sink=sink)


class Joined(Stream):
    """Pairs, and what came too late to be one."""

    @property
    def late(self) -> Stream:
        return self._late(0)

    @property
    def late_other(self) -> Stream:
        return self._late(1)

    def _late(self, port: int) -> Stream:
        lates = self._step.rest.setdefault("lates", {})
        if port not in lates:
            of = self._step.parents[port]
            late = lates[port] = Step("late", f"{self._step.name}/late{port}", [], of=of)
            late.level, late.keys, late.gives = self._step.level, of.keys, of.gives
            self._flow.steps.append(late)
        return Stream(self._flow, lates[port])


class Substreams:
    """The ends of substreams, and what opens them."""

    def __init__(self, ended: Stream, of: Step) -> None:
        self.ended, self._of = ended, of
        ended._step.rest["opening"] = None

    @property
    def begun(self) -> Stream:
        step, flow = self.ended._step, self.ended._flow
        if step.rest["opening"] is None:
            begun = step.rest["opening"] = Step("begun", f"{step.name}/begun", [], of=self._of)
            begun.level, begun.keys, begun.gives = step.level, self._of.keys, self._of.gives
            flow.steps.append(begun)
        return Stream(flow, step.rest["opening"])


class Windowed:
    """Windows, of which nothing is made yet."""

    def __init__(self, flow: Flow, step: Step) -> None:
        self._flow, self._step = flow, step
        self._takes = step.gives

    @property
    def late(self) -> Stream:
        if "late" not in self._step.rest:
            late = Step("late", f"{self._step.name}/late", [], of=self._step.parents[0])
            late.level, late.keys, late.gives = self._step.level, self._step.keys, self._takes
            self._step.rest["late"] = late
            self._flow.steps.append(late)
        return Stream(self._flow, self._step.rest["late"])

    def _made(self, result: Result, gives: Any) -> Stream:
        self._step.rest["result"], self._step.gives = result, gives
        return Stream(self._flow, self._step)

    def aggregate(self, record: Any, **columns: Any) -> Stream:
        return self._made(aggregating(record, self._step.keys, columns), record)

    def reduce(self, function: Any) -> Stream:
        return self._made(reducing(function), self._takes)

    def fold(self, function: Any, initial: Any, finish: Any, *, merge: Any = None, returns: Any = None) -> Stream:
        gives = returns or typing.get_type_hints(finish)["return"]
        return self._made(folding(function, initial, finish, merge), gives)

    def apply(self, function: Any, *, returns: Any = None) -> Stream:
        return self._made(applying(function), returns or typing.get_args(typing.get_type_hints(function)["return"])[0])


class Flow:
    """A flow, and what it gives."""

    def __init__(self, name: str, *, dead_letters: Kafka | None = None, on_commit: Any = None) -> None:
        self.name, self.dead_letters = name, dead_letters
        self.steps: list[Step] = []

    def read(self, name: str, source: Kafka) -> Stream:
        step = Step("read", name, [], source=source)
        step.gives = source.record
        self.steps.append(step)
        return Stream(self, step)

    def parameter(self, name: str, default: Any) -> Any:
        return default

    def clock(self, name: str, every: timedelta, *, tz: str | None = None) -> Stream:
        assert tz is None, "this one goes by UTC alone"
        step = Step("clock", name, [], every=every)
        step.level, step.gives = 1, Moment
        self.steps.append(step)
        return Stream(self, step)

    def run_locally(
        self,
        inputs: Mapping[str, Iterable[Any]] | None = None,
        *,
        until: datetime | None = None,
        states: Mapping[str, Mapping[Any, Any]] | None = None,
        **named: Iterable[Any],
    ) -> dict[str, list[Any]]:
        """As users call it: sources one after the other, each in the order given, or all by their log times."""
        start: list[tuple[Step, Record]] = []
        fronts: list[tuple[Step, Iterable[Any]]] = []
        reads = [step for step in self.steps if step.kind == "read"]
        for step in sorted(reads, key=lambda step: not step.rest["source"].preload):
            given = {**(inputs or {}), **named}.get(step.name, ())
            fronts += [(step, given[n]) for n in sorted(given)] if isinstance(given, dict) else [(step, given)]
        for front, (step, records) in enumerate(fronts):
            tick = -(2**62)
            for offset, each in enumerate(records):
                value, at = each if isinstance(each, Stamped) else (each, getattr(each, "timestamp", None) or EPOCH)
                tick = max(tick, (at - EPOCH) // timedelta(milliseconds=2))
                message = Came(front, offset, 0, None, value if isinstance(value, bytes) else dumped(value))
                if isinstance(value, Message):
                    stamp = 0 if value.timestamp is None else round((value.timestamp - ORIGIN).total_seconds() * 1000)
                    rest = value.key, value.value, tuple(value.headers), step.rest["source"].topic
                    message = Came(front, offset, stamp, *rest)
                    value = value.value
                start.append((step, Record(tick, (), value, message)))
        run = Run(self, slack_ms=2, units=128, looks_ahead=any(record.tick for _, record in start))
        run.begin(states or {})
        run.take(start, None if until is None else -((EPOCH - until) // timedelta(milliseconds=2)))
        written = {step.name: [record.value for record in run.written[step]] for step in run.written}
        return written if self.dead_letters is None else {**written, "dead-letters": run.letters}

    def run_log(
        self,
        log: Mapping[str, Sequence[Came]],
        floors: Iterable[Said] = (),
        *,
        slack_ms: int = 2,
        units: int = 128,
        lanes: int = 1,
    ) -> tuple[dict[str, dict[int, list[tuple[Any, ...]]]], list[Letter]]:
        """What each lane of each sink is given, as (key, value, timestamp, *headers) in order, and the dead letters."""
        reads = [step for step in self.steps if step.kind == "read"]
        start = []
        for step in reads:
            topic = step.rest["source"].topic
            same = [each for each in reads if each.rest["source"].topic == topic]
            path = (same.index(step) + 1,) if len(same) > 1 else ()
            for tick, message in labelled(log.get(step.name, ()), list(floors), slack_ms):
                start.append((step, Record(tick, path, message.value, message)))
        run = Run(self, slack_ms=slack_ms, units=units)
        run.take(start)
        out: dict[str, dict[int, list[Any]]] = {}
        for step, records in run.written.items():
            lanes_of = out.setdefault(step.name, {})
            for record in records:
                key, value, headers = message_of(step.rest["sink"], record.value)
                assert record.unit is not None
                lane = record.unit * lanes // units
                lanes_of.setdefault(lane, []).append((key, value, max(1, record.tick * slack_ms), *headers))
        return out, run.letters


def labelled(messages: Iterable[Came], floors: Sequence[Said], slack_ms: int) -> list[tuple[int, Came]]:
    """R1, word for word: the largest of the label before, the tick of the timestamp or its cap, and the floors."""
    before: dict[int, int] = {}
    found = []
    for message in sorted(messages, key=lambda each: each[:2]):
        own = [said.tick for said in floors if said.cap and said[:2] == message[:2]]
        labels = [max(own) if own else message.timestamp // slack_ms]
        labels += [said.tick for said in floors if not said.cap and said[0] == message[0] and said[1] <= message[1]]
        if message.front in before:
            labels.append(before[message.front])
        before[message.front] = max(labels)
        found.append((before[message.front], message))
    return found


def entered(head: Step, record: Record) -> Record:
    """A record in its next turn: with one more element in its path or, where its key changes, one turn more in it."""
    turns = record.turns + 1
    if not head.crosses:
        return record.below(LOOP)._replace(turns=turns)
    if turns == 1:
        return record.below(LOOP).below(1)._replace(turns=1, turning=len(record.path) + 1)
    place, path = record.turning, record.path
    return record._replace(path=(*path[:place], turns, *path[place + 1 :]), turns=turns)


class Run:
    """One run: the record that is first in the order takes its next step, until none is left."""

    def __init__(self, flow: Flow, *, slack_ms: int, units: int, looks_ahead: bool = True) -> None:
        self._flow, self._slack_ms, self._units = flow, slack_ms, units
        self._bags = {
            step: Bags(step.rest, number, slack_ms=slack_ms, units=units, looks_ahead=looks_ahead)
            for number, step in enumerate(flow.steps)
            if step.kind == "window"
        }
        self._nears = {
            step: (AsofNears if step.kind == "join_asof" else Nears)(
                step.rest, number, slack_ms=slack_ms, units=units, looks_ahead=looks_ahead
            )
            for number, step in enumerate(flow.steps)
            if step.kind in ("join", "join_asof")
        }
        self._asked: dict[Step, dict[Any, tuple[int, datetime]]] = {step: {} for step in flow.steps}
        """By step the tick at which each key wants to be called, and the moment it asks for."""
        self._units_of: dict[Any, int] = {}
        """The unit of each key of a step with a timer."""
        self._called_at: set[tuple[Step, int, int]] = set()
        """The windows, ticks and units at which the clock calls or has called."""
        self._queue: list[tuple[Any, int, Step, int, Record]] = []
        self._number = count()
        self._kept: dict[Step, dict[Any, Any]] = {step: {} for step in flow.steps}
        """By step what it keeps of each key; of a broadcast of none."""
        self._touched: dict[Step, dict[Any, int]] = {step: {} for step in flow.steps}
        """By step the tick at which each key was touched; of a deduplicate, at which one of its records went on."""
        self.written: dict[Step, list[Record]] = {step: [] for step in flow.steps if step.kind == "write"}
        self.letters: list[Letter] = []

    def take(self, start: Sequence[tuple[Step, Record]], until: int | None = None) -> None:
        self._strike(start, until)
        for step, record in start:
            self._put(step, 0, record)
        while self._queue:
            _, _, step, port, record = heapq.heappop(self._queue)
            if port == CLOCK:
                if until is None or record.tick <= until:
                    self._called_by_time(step, record)
                continue
            named = step.parents[1] if step.kind == "scan" and port == 1 else step
            try:
                results = self._done(step, port, record)
            except Failed as failed:
                self._bury(named, record, failed.args[0])
                continue
            for result in results:
                self._pass_on(step, result)

    def begin(self, states: Mapping[str, Mapping[Any, Any]]) -> None:
        """Begin with states by step and key; none asks for a timer."""
        for step in self._flow.steps:
            for key, state in states.get(step.name, {}).items():
                self._kept[step][key if isinstance(key, tuple) else (key,)] = state

    def _strike(self, start: Sequence[tuple[Step, Record]], until: int | None) -> None:
        """Have clocks called at each multiple after the first record: to the one that ends the span of the last."""
        ticks = [record.tick for step, record in start if not step.rest["source"].preload]
        slack = timedelta(milliseconds=self._slack_ms)
        for step in self._flow.steps:
            if step.kind != "clock" or not ticks:
                continue
            every, first, last = step.rest["every"], min(ticks) * slack, max(ticks) * slack
            moment = first - first % every + every
            while -(-moment // slack) <= until if until is not None else moment <= last - last % every + every:
                unit, tick = unit_of([step.name], self._units), -(-moment // slack)
                self._call_at(step, (tick, -1, self._flow.steps.index(step) * self._units + unit), unit)
                self._kept[step][tick] = Moment(step.name, EPOCH + moment)
                moment += every

    def _put(self, step: Step, port: int, record: Record) -> None:
        heapq.heappush(self._queue, (record.place, next(self._number), step, port, record))

    def _pass_on(self, step: Step, record: Record) -> None:
        takers = [
            (taker, port)
            for taker in dict.fromkeys(step.takers)
            for port, parent in enumerate(taker.parents)
            if parent is step
        ]
        for number, (taker, port) in enumerate(takers, 1):
            branch = record.below(number) if len(takers) > 1 else record
            if taker.level > step.level or (taker.kind == "write" and taker.level == 0):
                hint = type(branch.value) if step.kind == "connect" else step.gives
                branch = branch._replace(value=normal(hint, branch.value))
            if branch.unit is None and taker.level > 0 and taker.kind != "key_by":
                branch = branch._replace(unit=unit_of_front(branch.message.front, self._units))
            self._put(taker, port, branch)

    def _done(self, step: Step, port: int, record: Record) -> list[Record]:
        kind, value = step.kind, record.value
        if kind == "read":
            return [record._replace(value=self._read(step, record))]
        if kind == "write":
            self.written[step].append(self._placed(step.rest["sink"], record))
            return []
        if kind == "key_by":
            keys, front = [getattr(value, column) for column in step.keys], record.message.front
            return [record._replace(unit=unit_of(keys, self._units) if keys else unit_of_front(front, self._units))]
        if kind == "loop":
            return [entered(step, record)]
        if kind == "broadcast":
            return [record.below(1)]
        ported = {
            "last": self._with_state,
            "scan": self._with_state,
            "join_table": self._with_row,
            "join": self._joined,
            "join_asof": self._joined,
        }
        if kind in ported:
            return ported[kind](step, port, record)
        if kind == "deduplicate":
            return self._new(step, record)
        if kind == "split":
            return self._parted(step, record)
        if kind in ("window", "when_done"):
            return (self._windowed if kind == "window" else self._waits)(step, record)
        return [record] if kind in ("merge", "connect", "table", "side") else self._called(step, record)

    def _parted(self, step: Step, record: Record) -> list[Record]:
        result = called(lambda: step.rest["function"](record.value), record)
        if type(result) is not bool:
            raise Failed(record.value)
        self._put(step.takers[not result], 0, record.below(2 - result))
        return []

    def _windowed(self, step: Step, record: Record) -> list[Record]:
        key, bags, unit = tuple(getattr(record.value, column) for column in step.keys), self._bags[step], record.unit
        assert unit is not None
        is_late, outs, ticks = called(lambda: bags.take(key, record), record)
        for tick in ticks:
            self._call_at(step, bags.place(tick, unit), unit)
        if is_late and "late" in step.rest:
            late = record.below(1) if step.rest["emit"] == "update" else record
            self._pass_on(step.rest["late"], late)
        return [record._replace(value=out).below(number) for number, out in enumerate(outs, 2)]

    def _call_at(self, step: Step, place: tuple[int, int, int], unit: int) -> None:
        """Have the clock call a step at a place, once."""
        tick, _, number = place
        if (step, tick, unit) not in self._called_at:
            self._called_at.add((step, tick, unit))
            self._put(step, CLOCK, Record(tick, (), None, Came(-1, number, 0, None, None), unit))

    def _joined(self, step: Step, port: int, record: Record) -> list[Record]:
        key, nears, unit = (
            tuple(getattr(record.value, column) for column in step.parents[port].keys),
            self._nears[step],
            record.unit,
        )
        assert unit is not None
        if nears.is_late(port, record):
            if port in step.rest.get("lates", {}):
                self._pass_on(step.rest["lates"][port], record)
            return []
        self._call_at(step, nears.place(nears.ends(port, record), unit), unit)
        found = []
        for number, pair in enumerate(nears.take(key, port, record), 1):
            found += self._called_with(step, record.below(number), *pair)
        return found

    def _leave_alone(self, step: Step, clock: Record) -> None:
        """Give the records of a join that have found no partner, each with its number."""
        assert clock.unit is not None
        for number, (value, pair) in enumerate(self._nears[step].leave(clock.tick, clock.unit), 1):
            for out in self._called_with(step, clock._replace(value=value, path=(number,)), *pair):
                self._pass_on(step, out)

    def _called_with(self, step: Step, record: Record, left: Any, right: Any) -> list[Record]:
        try:
            result = called(lambda: step.rest["function"](left, right), record)
            if type(result) is not step.gives:
                raise Failed(record.value)
        except Failed as failed:
            self._bury(step, record, failed.args[0])
            return []
        return [record._replace(value=result)]

    def _close(self, step: Step, clock: Record) -> None:
        """Give what a step's windows give that close at a tick, each with its number."""
        number = 0
        assert clock.unit is not None
        for window, kept in self._bags[step].close(clock.tick, clock.unit):
            for out in [] if step.rest["emit"] == "update" else step.rest["result"].finish(window, kept):
                number += 1
                self._pass_on(step, clock._replace(value=out, path=(number,)))

    def _called(self, step: Step, record: Record) -> list[Record]:
        function = step.rest["function"]
        if step.kind == "map_batches":
            return [record._replace(value=batched(function, step, record.value))]
        if step.kind == "call":
            function = functools.partial(asked, function)
        result = called(
            lambda: list(function(record.value)) if step.kind == "flat_map" else function(record.value), record
        )
        if step.kind == "flat_map":
            if any(type(each) is not step.gives for each in result):
                raise Failed(record.value)
            return [record._replace(value=each).below(number) for number, each in enumerate(result, 1)]
        if step.kind in ("map", "call"):
            if type(result) is not step.gives:
                raise Failed(record.value)
            return [record._replace(value=result)]
        if type(result) is not bool:
            raise Failed(record.value)
        if step.kind == "again":
            if not result:
                return [record._replace(turns=0)]
            assert step.head is not None
            self._go_round(step, step.head, record)
            return []
        return [record] if result else []

    def _go_round(self, step: Step, head: Step, record: Record) -> None:
        if record.turns >= step.rest["limit"]:
            raise Failed(record.value)
        unit = record.unit
        if head.parents[0].kind == "key_by":
            unit = unit_of([getattr(record.value, column) for column in head.keys], self._units)
        if unit != record.unit and not head.crosses:
            raise Failed(record.value)
        self._put(head, 0, record._replace(value=normal(step.gives, record.value), unit=unit))

    def _with_state(self, step: Step, port: int, record: Record) -> list[Record]:
        value = record.value
        if port == 1:
            self._see(step.parents[1], record)
            return []
        before_it = step.parents[0]
        keyed = {each.gives: each.keys for each in before_it.parents} if before_it.kind == "connect" else {}
        columns = keyed.get(type(value), step.keys)
        key, kept, rest = tuple(getattr(value, column) for column in columns), self._kept[step], step.rest
        if rest["ttl"] is not None and self._age(step, key, record) >= rest["ttl"] and "on_forgotten" not in rest:
            kept.pop(key, None)
            self._asked[step].pop(key, None)
        self._touched[step][key] = record.tick
        if step.kind == "last":
            window = kept[key] = (*kept.get(key, ()), value)[-rest["number"] :]
            return [record._replace(value=window)] if rest["partial"] or len(window) == rest["number"] else []
        before = kept.get(key, rest["initial"])
        beside = [self._kept[each].get((), each.rest["initial"]) for each in step.parents[1:]]
        if "opening" in rest:
            beside = [EPOCH + record.tick * timedelta(milliseconds=self._slack_ms)]
        if "flat" in rest:
            state, outputs = called(lambda: flat(rest["function"](before, value, *beside)), record)
            if any(type(each) is not step.gives for each in outputs):
                raise Failed(value)
            kept[key] = state
            if "timer" in rest or "on_forgotten" in rest:
                self._units_of[step, key] = record.unit or 0
                self._ask(step, key, record.tick)
            if rest.get("opening") is not None and not before and (state or outputs):
                self._pass_on(rest["opening"], record)
            return [record._replace(value=each).below(number) for number, each in enumerate(outputs, 1)]
        state, output = called(lambda: rest["function"](before, value, *beside), record)
        if type(output) is not step.gives:
            raise Failed(value)
        kept[key] = state
        return [record._replace(value=output)]

    def _ask(self, step: Step, key: Any, tick: int) -> None:
        """What the state asks for takes the place of what was asked; the past comes a tick on."""
        state = self._kept[step][key]
        slack = timedelta(milliseconds=self._slack_ms)
        if state == step.rest["initial"]:
            moment = None
        elif "timer" in step.rest:
            moment = step.rest["timer"](state)
        else:
            moment = EPOCH + (tick - -step.rest["ttl"] // slack) * slack
        self._asked[step].pop(key, None)
        if moment is not None:
            due = max(-((EPOCH - moment) // slack), tick + 1)
            self._asked[step][key] = due, moment
            unit = self._units_of[step, key]
            self._call_at(step, (due, -1, self._flow.steps.index(step) * self._units + unit), unit)

    def _call_keys(self, step: Step, clock: Record) -> None:
        """Call the keys of a unit that are due at a tick, in the order of their moments and bytes."""
        due = [
            (moment, whole_bytes(key), key)
            for key, (tick, moment) in self._asked[step].items()
            if tick == clock.tick and self._units_of[step, key] == clock.unit
        ]
        number = 0
        for moment, _, key in sorted(due, key=lambda each: each[:2]):
            del self._asked[step][key]
            ttl = step.rest["ttl"]
            says_so = "on_forgotten" in step.rest
            if says_so and self._age(step, key, clock) < ttl:
                self._ask(step, key, self._touched[step][key])
                continue
            if ttl is not None and self._age(step, key, clock) >= ttl and not says_so:
                continue
            state = self._kept[step][key]
            self._touched[step][key] = clock.tick
            self._kept[step][key] = step.rest["initial"]
            try:
                after, outs = called(functools.partial(call_of_time, step, state, moment), clock)
                again = None if after == step.rest["initial"] else step.rest["timer"](after)
                if again is not None and again <= moment:
                    raise Failed(None)
            except Failed:
                number += 1
                named = key[0] if len(key) == 1 else key
                self._bury(step, clock, {"key": named, "time": moment.astimezone(UTC), "state": state})
                continue
            self._kept[step][key] = after
            self._ask(step, key, clock.tick)
            for out in outs:
                number += 1
                self._pass_on(step, clock._replace(value=out, path=(number,)))

    def _last(self, done: Step, tick: int) -> int:
        """The tick of the last that comes of a tick's records in the stream that a `when_done` waits for."""
        through, stream = done.rest["through"], done.parents[0]
        if through is None:
            return tick
        own, above = upstream(stream), upstream(through)
        begins = {stream} if stream in above else own & above
        known: dict[Step, int | None] = {}

        def last(step: Step) -> int | None:
            if step in begins or step in own:
                return tick if step in begins else None
            if step not in known:
                before = [(port, last(parent)) for port, parent in enumerate(made_of(step))]
                known[step] = max((self._after(step, port, at) for port, at in before if at is not None), default=None)
            return known[step]

        found = last(through)
        assert found is not None, f"nothing of {stream.name} comes to {through.name}"
        return found

    def _after(self, step: Step, port: int, tick: int) -> int:
        """The tick of the last that a step makes of a record, as far as the flow says it."""
        at = EPOCH + tick * timedelta(milliseconds=self._slack_ms)
        if step.kind == "when_done":
            return self._last(step, tick) + 1
        if step.kind == "window" and step.rest["emit"] == "close":
            return max(self._bags[step].closing(end) for _, end in step.rest["windows"].spans(at))
        if step.kind == "join":
            last = at + step.rest["before" if port else "after"]
            alone = step.rest["how"] in ("outer", "right" if port else "left")
            found: int = (last - EPOCH) // timedelta(milliseconds=self._slack_ms) + alone
            return found
        return tick

    def _waits(self, step: Step, record: Record) -> list[Record]:
        """Lay a record aside until the next tick begins."""
        label = step.rest["label"]
        key = tuple(getattr(record.value, column) for column in label)
        unit = unit_of(key, self._units) if label else record.unit
        assert unit is not None
        tick = self._last(step, record.tick) + 1
        self._kept[step].setdefault((tick, unit), []).append((whole_bytes(key), record.place, record.value))
        self._call_at(step, (tick, -1, self._flow.steps.index(step) * self._units + unit), unit)
        return []

    def _called_by_time(self, step: Step, clock: Record) -> None:
        if step.kind == "scan":
            self._call_keys(step, clock)
        elif step.kind == "clock":
            self._pass_on(step, clock._replace(value=self._kept[step][clock.tick], path=(1,)))
        elif step.kind == "when_done":
            waiting = sorted(self._kept[step].pop((clock.tick, clock.unit)), key=lambda each: each[:2])
            for number, (_, _, value) in enumerate(waiting, 1):
                self._pass_on(step, clock._replace(value=value, path=(number,)))
        else:
            (self._close if step.kind == "window" else self._leave_alone)(step, clock)

    def _with_row(self, step: Step, port: int, record: Record) -> list[Record]:
        table, rows = step.parents[1], self._kept[step]
        key = tuple(getattr(record.value, column) for column in step.parents[port].keys)
        if port == 1:
            rows[key] = None if table.rest["deleted"] and getattr(record.value, table.rest["deleted"]) else record.value
            self._touched[step][key] = record.tick
            return []
        row = None if None in key else rows.get(key)
        if table.rest["ttl"] is not None and self._age(step, key, record) >= table.rest["ttl"]:
            row = None
        if row is None and step.rest["how"] == "inner":
            return []
        result = called(lambda: step.rest["function"](record.value, row), record)
        if type(result) is not step.gives:
            raise Failed(record.value)
        return [record._replace(value=result)]

    def _new(self, step: Step, record: Record) -> list[Record]:
        key = tuple(getattr(record.value, column) for column in step.keys)
        if key in self._touched[step] and self._age(step, key, record) < step.rest["within"]:
            return []
        self._touched[step][key] = record.tick
        return [record]

    def _age(self, step: Step, key: Any, record: Record) -> timedelta:
        """Log time since a key was touched."""
        return timedelta(milliseconds=(record.tick - self._touched[step].get(key, record.tick)) * self._slack_ms)

    def _see(self, broadcast: Step, record: Record) -> None:
        kept, function = self._kept[broadcast], broadcast.rest["function"]
        before = kept.get((), broadcast.rest["initial"])
        kept[()] = called(lambda: function(before, record.value), record)

    def _read(self, step: Step, record: Record) -> Any:
        declared, message = step.gives, record.message
        if not isinstance(record.value, bytes | None):
            return record.value
        if declared is Raw:
            return Raw(message.key, message.value)
        try:
            return record_of(declared, message)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise Failed(message.value) from error

    def _placed(self, sink: Kafka, record: Record) -> Record:
        """A record that can be written, with its unit: without a key_by, that of the sink's key, or of its front."""
        if sink.record is not Raw and not writable(record.value):
            raise Failed(record.value)
        if record.unit is not None:
            return record
        column = key_column(sink)
        if column is None:
            return record._replace(unit=unit_of_front(record.message.front, self._units))
        return record._replace(unit=unit_of([getattr(record.value, column)], self._units))

    def _bury(self, step: Step, record: Record, value: Any) -> None:
        message = record.message
        assert self._flow.dead_letters is not None, f"{step.name} fails for {value!r}"
        whole = step.level == 0 and step.kind != "write"
        kept = (message.key, message.value) if whole else (None, dumped(value))
        self.letters.append(
            Letter(step.name, message.front, message.offset, max(1, record.tick * self._slack_ms), *kept)
        )


def called(call: Callable[[], Any], record: Record) -> Any:
    try:
        return call()
    except Exception as error:
        raise Failed(record.value) from error


def made_of(step: Step) -> list[Step]:
    """The steps whose records those of a step are made of, by port."""
    return [step.rest["of"]] if "of" in step.rest else step.parents


def upstream(step: Step) -> set[Step]:
    found, left = {step}, [step]
    while left:
        for each in set(made_of(left.pop())) - found:
            found.add(each)
            left.append(each)
    return found


def judged(predicate: Any, value: Any) -> bool:
    says = predicate(value)
    if not isinstance(says, bool):
        raise TypeError(predicate)
    return says


def asked(function: Any, record: Any) -> Any:
    """What a call's function answers, given any key."""
    keyed = {name: "a key" for name in inspect.signature(function).parameters if name == "key"}
    answer = function(record, **keyed)
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer


def call_of_time(step: Step, state: Any, moment: datetime) -> tuple[Any, list[Any]]:
    if "on_forgotten" in step.rest:
        return flat((step.rest["initial"], step.rest["on_forgotten"](state)))
    return flat(step.rest["on_timer"](state, moment))


def flat(result: Any) -> tuple[Any, list[Any]]:
    state, outputs = result
    return state, list(outputs)


def batched(function: Any, step: Step, value: Any) -> Any:
    """A batch of one."""
    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), bytes: pa.binary()}
    hints = typing.get_type_hints(step.rest["takes"])
    schema = pa.schema([(name, plain[hint]) for name, hint in hints.items()])
    (row,) = function(pa.RecordBatch.from_pylist([dataclasses.asdict(value)], schema)).to_pylist()
    return step.gives(**row)


def key_column(sink: Kafka) -> str | None:
    return sink.key or next(iter(marked(sink.record, "Key")), None)


def message_of(sink: Kafka, record: Any) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]:
    if isinstance(record, Raw):
        return record.key, record.value, []
    column = key_column(sink)
    key = None if column is None else getattr(record, column)
    if not (key is None or isinstance(key, bytes)):
        key = str(key.value if isinstance(key, Enum) else key).encode()
    found = [(mark.name, getattr(record, name)) for name, mark in marked(type(record), "Header").items()]
    headers = [
        (name, value.encode() if isinstance(value, str) else value) for name, value in found if value is not None
    ]
    return key, written(record), headers


# -- the other words of the package ------------------------------------------------------------------------------------


def event_time(
    column: str, *, wait: timedelta, ahead: timedelta = timedelta(days=1), late: str | None = None
) -> EventTime:
    return EventTime(column, wait, ahead)


def sides(time: EventTime | tuple[EventTime, EventTime] | None) -> dict[str, Any]:
    """The event time of a join's step."""
    if time is None:
        time = EventTime(None)
    one, other = (time, time) if isinstance(time, EventTime) else time
    columns = None if one.column is None else (one.column, other.column)
    return {"time": columns, "wait": (one.wait, other.wait), "ahead": one.ahead}


def kafka(
    topic: str,
    record: Any,
    *,
    key: str | None = None,
    stop: Any = None,
    preload: bool = False,
    compacted: bool = False,
    timestamps: str | None = None,
) -> Kafka:
    """What is there is what is given: nothing comes after a stop, nothing is compacted, and times are what they are."""
    return Kafka(topic, record, key, preload)


def postgres(table: str, record: Any, *, key: str | None = None, **_: Any) -> Kafka:
    """What is written is a list, wherever it goes."""
    return Kafka(table, record, key, False)


def files(pattern: str, record: Any, **_: Any) -> Kafka:
    """Likewise."""
    return Kafka(pattern, record, None, False)


delta = iceberg = files


def puts(name: str, record: Any, *, key: str, **_: Any) -> Kafka:
    return Kafka(name, record, key, False)


def redis(*_: Any, **__: Any) -> None:
    """Nothing is put anywhere."""


elasticsearch = http = redis


def json(record: Any) -> Any:
    return record


parquet = json_lines = json


def raw() -> Any:
    return Raw


def main(_: Flow) -> None:
    """Nothing runs here."""


class Message(NamedTuple):
    """A message for `run_locally`."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: datetime | None = None


class Named(NamedTuple):
    """A marker with a name, or a unit."""

    name: str

    @property
    def unit(self) -> str:
        return self.name


class Alias(Named):
    """A field's name in the value."""


class Epoch(Named):
    """An integer that is a time."""


class Header(Named):
    """A header."""


class Key:
    """The key."""


class Timestamp:
    """The log's timestamp."""


class Topic:
    """The topic."""


class Partition:
    """The partition."""


class Offset:
    """The offset."""


class Tombstone:
    """True if there is no value."""


KeyedStream = Broadcast = Stream


def millis(number: float) -> timedelta:
    return timedelta(milliseconds=number)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def days(number: float) -> timedelta:
    return timedelta(days=number)


class agg:  # noqa: N801 - stands in for a module
    """Aggregates as functions of all values of a key, oldest first."""

    @staticmethod
    def count(column: str | None = None) -> Any:
        return lambda values: len(values if column is None else some(values, column))

    @staticmethod
    def sum(column: str) -> Any:
        return lambda values: functools.reduce(operator.add, found) if (found := some(values, column)) else None

    @staticmethod
    def mean(column: str) -> Any:
        return lambda values: (
            functools.reduce(operator.add, found) / len(found) if (found := some(values, column)) else None
        )

    @staticmethod
    def min(column: str) -> Any:
        return lambda values: min(some(values, column), default=None)

    @staticmethod
    def max(column: str) -> Any:
        return lambda values: max(some(values, column), default=None)

    @staticmethod
    def first(column: str) -> Any:
        return lambda values: getattr(values[0], column)

    @staticmethod
    def latest(column: str) -> Any:
        return lambda values: getattr(values[-1], column)

    @staticmethod
    def min_by(column: str, by: str) -> Any:
        return lambda values: best(min, values, column, by)

    @staticmethod
    def max_by(column: str, by: str) -> Any:
        return lambda values: best(max, values, column, by)

    @staticmethod
    def count_distinct(column: str) -> Any:
        return lambda values: len(set(some(values, column)))

    @staticmethod
    def collect(column: str | None = None) -> Any:
        return lambda values: values if column is None else tuple(getattr(value, column) for value in values)


def some(values: Sequence[Any], column: str) -> list[Any]:
    return [found for value in values if (found := getattr(value, column)) is not None]


def best(choose: Any, values: Sequence[Any], column: str, by: str) -> Any:
    known = [value for value in values if getattr(value, by) is not None]
    return getattr(choose(known, key=lambda value: getattr(value, by)), column) if known else None
