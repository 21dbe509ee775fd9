"""No value of a user's is a marker: keys, states, fields, rows and results may be None, 0, "", False or empty."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import GenericAlias
from typing import Annotated, Any

import msgspec
import pytest
from one_level import Level, parcels_of, saved_and_read
from programs import END, Programs, by_lane

import lowtide as lt
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.schema.headers import pack_headers
from lowtide.local.run import Message, run_log

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
SLACK_MS = 2

STATES: list[tuple[Any, list[Any]]] = [
    (int | None, [None, 0, 1]),
    (str | None, [None, "", "0"]),
    (bool | None, [None, False, True]),
    (bytes | None, [None, b"", b"\0"]),
    (float | None, [None, 0.0, 1.5]),
    (tuple[int | None, ...], [(), (None,), (0,)]),
    (tuple[int, ...] | None, [None, (), (0,)]),
    (dict[str, int | None], [{}, {"": None}, {"": 0}]),
]
"""Types of states, with values of each that somebody may take for no value."""
KEYS = ("text", "count", "flag", "data")


@dataclass(frozen=True)
class Event:
    text: Annotated[str | None, lt.Key()]
    data: Annotated[bytes | None, lt.Header("data")]
    number: int
    at: datetime
    count: int | None = None
    flag: bool | None = None
    gone: bool = False
    items: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Out:
    said: str
    at: datetime
    text: Annotated[str | None, lt.Key()] = None
    note: Annotated[str | None, lt.Header("note")] = None


@dataclass(frozen=True)
class Seen:
    window_start: datetime
    first: str | None
    last: bool | None
    least: int | None
    most: int | None
    total: int | None
    mean: float | None
    flags: tuple[bool | None, ...]
    kinds: int
    newest: int | None
    own: int | None


def out_of(state: Any, event: Event) -> Out:
    return Out(repr(state), event.at, event.text, event.text)


def said(*records: Event | None) -> Out:
    shown = [None if each is None else (each.text, each.number, each.count, each.flag, each.items) for each in records]
    return Out(repr(shown), next(each.at for each in records if each is not None))


def pair(left: Event | None, right: Event | None) -> Out:
    return said(left, right)


def left_pair(left: Event, right: Event | None) -> Out:
    return said(left, right)


def last_two(window: tuple[Event, ...]) -> Out:
    return said(*window)


def listed(window: lt.Window, events: tuple[Event, ...]) -> list[Out]:
    return [said(*events)]


def later(one: Event, other: Event) -> Event:
    return replace(other, items=(*one.items, other.count)[-3:])


class Functions:
    """A step's functions with a state of one type, which goes from value to value."""

    def __init__(self, dice: random.Random) -> None:
        self.kind, self.values = dice.choice(STATES)
        self.initial = dice.choice(self.values)

    def next(self, *seen: Any) -> Any:
        return self.values[zlib.crc32(repr(seen).encode()) % len(self.values)]

    def typed(self, function: Callable[..., Any], **types: Any) -> Any:
        """With annotations, in the order of the arguments and the result."""
        function.__annotations__ = types
        return function

    def scan(self) -> Any:
        def scan(state: Any, event: Any) -> Any:
            return self.next(state, event.number), out_of(state, event)

        return self.typed(scan, state=self.kind, event=Event, **{"return": GenericAlias(tuple, (self.kind, Out))})

    def beside(self, other: Functions) -> Any:
        def beside(state: Any, event: Any, seen: Any) -> Any:
            return self.next(state, event.number), out_of((state, seen), event)

        return self.typed(
            beside, state=self.kind, event=Event, seen=other.kind, **{"return": GenericAlias(tuple, (self.kind, Out))}
        )

    def flat(self) -> Any:
        def flat(state: Any, event: Any) -> Any:
            after = self.next(state, event.number)
            return after, [out_of(state, event)] * (event.number % 3)

        return self.typed(flat, state=self.kind, event=Event, **{"return": GenericAlias(tuple, (self.kind, list[Out]))})

    def timer(self) -> Any:
        def timer(state: Any) -> Any:
            place = self.values.index(state)
            return None if place == 1 else BEGAN + timedelta(milliseconds=40 * place + 3)

        return self.typed(timer, state=self.kind, **{"return": datetime | None})

    def on_timer(self) -> Any:
        def on_timer(state: Any, now: Any) -> Any:
            return self.values[1], [Out(repr(state), now)]

        return self.typed(
            on_timer, state=self.kind, now=datetime, **{"return": GenericAlias(tuple, (self.kind, list[Out]))}
        )

    def add(self) -> Any:
        def add(state: Any, event: Any) -> Any:
            return self.next(state, event.number)

        return self.typed(add, state=self.kind, event=Event, **{"return": self.kind})

    def merge(self) -> Any:
        def merge(one: Any, other: Any) -> Any:
            return self.next(one, other)

        return self.typed(merge, one=self.kind, other=self.kind, **{"return": self.kind})

    def finish(self) -> Any:
        def finish(window: Any, state: Any) -> Any:
            return Out(f"{window.key!r} {state!r}", window.start)

        return self.typed(finish, window=lt.Window, state=self.kind, **{"return": Out})


def own_add(state: int | None, value: int | None) -> int | None:
    return value if state is None else None if value == state else state


def own_merge(state: int | None, other: int | None) -> int | None:
    return other


class Writer:
    """Writes one flow over events and others, with every step that keeps something."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.flow = lt.Flow("any-value", dead_letters=lt.kafka("dead", lt.raw()))
        self._events: Any = self.flow.read("events", lt.kafka("events", lt.json(Event)))
        self._others: Any = self.flow.read("others", lt.kafka("others", lt.json(Event)))
        self._numbers = 0

    def name(self, word: str) -> str:
        self._numbers += 1
        return f"{word}{self._numbers}"

    def keyed(self, stream: Any = None) -> Any:
        columns = self._dice.sample(KEYS, self._dice.choice([1, 1, 2]))
        return (self._events if stream is None else stream).key_by(*columns, name=self.name("by"))

    def out(self, stream: Any, record: type = Out) -> None:
        name = self.name("out")
        stream.write(name, lt.kafka(name, lt.json(record)))

    def write(self) -> lt.Flow:
        steps = [self.scans, self.forgetting, self.windows, self.windows, self.joins, self.tables, self.done]
        for step in self._dice.sample(steps, 3):
            step()
        self.out(self._events.merge(self._others, name="both"), Event)
        return self.flow

    def ttl(self) -> timedelta | None:
        return self._dice.choice([None, lt.millis(30)])

    def scans(self) -> None:
        functions, others = Functions(self._dice), Functions(self._dice)
        self.out(self.keyed().scan(self.name("scan"), functions.scan(), functions.initial, ttl=self.ttl()))
        beside = self._others.broadcast(self.name("broadcast"), others.add(), others.initial)
        scan = functions.beside(others)
        self.out(self.keyed().scan(self.name("beside"), scan, functions.initial, broadcast=beside))
        flat, timer, on_timer = functions.flat(), functions.timer(), functions.on_timer()
        rest = {"timer": timer, "on_timer": on_timer} if self._dice.random() < 0.7 else {}
        self.out(self.keyed().flat_scan(self.name("flat"), flat, functions.initial, ttl=self.ttl(), **rest))
        reduced = self.keyed().reduce(self.name("reduce"), later, ttl=self.ttl())
        self.out(reduced, Event)

    def forgetting(self) -> None:
        self.out(self.keyed().last(2, name=self.name("last"), ttl=self.ttl()).map(last_two, name=self.name("two")))
        self.out(self.keyed().deduplicate(self.name("once"), within=lt.millis(30)), Event)

    def windows(self) -> None:
        dice = self._dice
        size = lt.millis(dice.choice([10, 20]))
        cut = dice.choice([lt.tumbling(size), lt.sliding(size, size / 2), lt.session(size), lt.session(size)])
        clock = lt.event_time("at", wait=lt.millis(6), late="drop") if dice.random() < 0.6 else None
        windowed = self.keyed().window(self.name("window"), cut, time=clock)
        functions, agg = Functions(dice), lt.agg
        kind = dice.choice(["fold", "fold", "fold", "reduce", "apply", "aggregate"])
        if kind == "fold":
            folded = windowed.fold(functions.add(), functions.initial, functions.finish(), merge=functions.merge())
            return self.out(folded)
        if kind == "reduce":
            return self.out(windowed.reduce(later), Event)
        if kind == "apply":
            return self.out(windowed.apply(listed))
        seen = windowed.aggregate(
            Seen,
            first=agg.first("text"),
            last=agg.latest("flag"),
            least=agg.min("count"),
            most=agg.max("count"),
            total=agg.sum("count"),
            mean=agg.mean("count"),
            flags=agg.collect("flag"),
            kinds=agg.count_distinct("count"),
            newest=agg.max_by("count", by="at"),
            own=agg.Aggregate(None, own_add, own_merge, column="count"),
        )
        return self.out(seen, Seen)

    def joins(self) -> None:
        columns = self._dice.sample(KEYS, self._dice.choice([1, 1, 2]))
        left, right = (each.key_by(*columns, name=self.name("by")) for each in (self._events, self._others))
        clock, span = lt.event_time("at", wait=lt.millis(6), late="drop"), lt.millis(12)
        self.out(left.join(self.name("join"), right, pair, after=span, before=span / 3, how="outer", time=clock))
        self.out(left.join_asof(self.name("asof"), right, left_pair, back=lt.millis(30), how="left", time=clock))

    def tables(self) -> None:
        columns = self._dice.sample(KEYS, self._dice.choice([1, 1, 2]))
        left, right = (each.key_by(*columns, name=self.name("by")) for each in (self._events, self._others))
        table = right.table(self.name("table"), deleted=self._dice.choice([None, "gone"]), ttl=self.ttl())
        self.out(left.join_table(self.name("with-row"), table, left_pair, how="left"))

    def done(self) -> None:
        functions = Functions(self._dice)
        scanned = self.keyed().scan(self.name("scan"), functions.scan(), functions.initial)
        done = self._events.when_done(
            self.name("done"), through=scanned, label=self._dice.choice(KEYS), keep=lt.millis(30)
        )
        self.out(scanned)
        self.out(done, Event)


def a_log(dice: random.Random, front: int) -> list[Message]:
    """Messages whose fields are nothing at all as often as not."""
    found, stamp = [], int(BEGAN.timestamp() * 1000)
    for offset in range(dice.randint(1, 30)):
        stamp += dice.choice([0, 1, 5, 25, -10])
        event = {
            "number": dice.randrange(3),
            "at": (
                BEGAN + timedelta(milliseconds=stamp - BEGAN.timestamp() * 1000 - dice.choice([0, 4, 8]))
            ).isoformat(),
            "count": dice.choice([None, 0, 1]),
            "flag": dice.choice([None, False, True]),
            "gone": dice.random() < 0.2,
            "items": dice.choice([[], [None], [0]]),
        }
        headers: list[tuple[str, bytes | None]] = [(dice.choice(["data", "other"]), dice.choice([None, b"", b"0"]))]
        key = dice.choice([None, b"", b"0"])
        found.append(
            Message(
                Position(front, offset),
                stamp,
                key,
                msgspec.json.encode(event),
                pack_headers(headers[: dice.randint(0, 1)]),
            )
        )
    return found


@pytest.mark.parametrize("batch", range(4))
def test_workers_and_the_interpreter_take_every_value_for_a_value(batch: int) -> None:
    delivered = 0
    for seed in range(batch, 60, 4):
        dice = random.Random(seed)
        flow = Writer(dice).write()
        lanes = dice.choice([1, 2])
        plan = compile_flow(flow, units=8, lanes=lanes, parallelism=lanes, slack_ms=SLACK_MS)
        log = {vertex.name: a_log(dice, front) for front, vertex in enumerate(plan.sources())}
        written, dead = run_log(plan, log)
        programs = Programs(plan, dice.randrange)
        for source, messages in log.items():
            programs.feed(source, messages)
        programs.run()
        programs.finish()
        assert programs.delivered == by_lane(written), f"seed {seed}"
        assert Counter(programs.dead) == Counter(dead), f"seed {seed}"
        assert not dead, f"seed {seed}"
        open_ = {
            name: each.number
            for level in programs.levels
            for program in level
            for name, each in program.kept.items()
            if each.what == "windows"
        }
        assert not any(open_.values()), f"seed {seed}: a window has never closed"
        delivered += sum(map(len, written.values()))
    assert delivered > 300


@pytest.mark.parametrize("batch", range(2))
def test_from_a_snapshot_on_every_value_is_what_it_was(batch: int) -> None:
    compared = kept = 0
    for seed in range(batch, 60, 2):
        dice = random.Random(seed)
        plan = compile_flow(Writer(dice).write(), units=8, lanes=1, parallelism=1, slack_ms=SLACK_MS)
        parcels = parcels_of(plan, {vertex.name: a_log(dice, front) for front, vertex in enumerate(plan.sources())})
        tick = int(BEGAN.timestamp() * 1000 + dice.randrange(200)) // SLACK_MS
        level, again = Level(plan), Level(plan)
        level.feed(parcels, tick)
        captured = saved_and_read(plan, level.program.capture(tick))
        again.program.restore(captured, tick)
        again.min_time = tick
        for each in (level, again):
            each.feed(parcels, END)
        assert again.from_tick(tick) == level.from_tick(tick), f"seed {seed}"
        compared += len(again.out)
        kept += sum(len(entries) for units in captured.values() for entries in units.values())
    assert compared > 300
    assert kept > 100
