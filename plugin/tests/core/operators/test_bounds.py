"""Steps keep no more than what is alive, however long the log: nothing is left that only its time cleans.

The measure of what is alive is a step that has been restored: it has the state of all keys, and no past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lowtide as lt
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.group import Expiry
from lowtide.core.operators.state.key_dues import KeyDues
from lowtide.core.operators.windows.windows import SessionWindows
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan

RECORDS = 4_000
SPARE = 1_500
"""Places that may be taken beside: caches, and what is left until most of it counts no more."""
BEGAN = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = 1_000_000
"""The first tick, of 1 ms."""


@dataclass(frozen=True)
class Event:
    key: int
    number: int
    at: datetime


@dataclass(frozen=True)
class Asked:
    until: datetime | None = None


@dataclass(frozen=True)
class Gone:
    key: int
    number: int
    at: datetime
    gone: bool


def put_off(_: Asked, event: Event) -> tuple[Asked, list[Event]]:
    """To be called an hour after the last record: the usual timer."""
    return Asked(event.at + timedelta(hours=1)), []


def put_off_or_not(_: Asked, event: Event) -> tuple[Asked, list[Event]]:
    return Asked(event.at + timedelta(hours=1) if event.number % 3 else None), []


def put_on(_: Asked, event: Event) -> tuple[Asked, list[Event]]:
    return Asked(event.at + timedelta(hours=9) - timedelta(milliseconds=30 * event.number)), []


def to_and_fro(_: Asked, event: Event) -> tuple[Asked, list[Event]]:
    hours = 2 if event.number % 2 else 4
    return Asked(event.at + timedelta(hours=hours) - timedelta(milliseconds=30 * event.number)), []


def asks(asked: Asked) -> datetime | None:
    return asked.until


def called(_: Asked, at: datetime) -> tuple[Asked, list[Event]]:
    return Asked(), []


def toggled(state: bool, event: Event) -> tuple[bool, Event]:
    return not state, event


def counted(state: int, event: Event) -> tuple[int, Event]:
    return state + 1, event


def newest(_: int, event: Event) -> int:
    return event.number


def beside(state: int, event: Event, seen: int) -> tuple[int, Event]:
    return state + 1, Event(event.key, seen, event.at)


def pair(one: Event, other: Event) -> Event:
    return one


def maybe_pair(one: Event | None, other: Event | None) -> Event:
    some = one or other
    assert some is not None
    return some


def with_row(one: Event, row: Gone | None) -> Event:
    return one


def gone(event: Event) -> Gone:
    return Gone(event.key, event.number, event.at, event.number % 2 == 1)


def ended(window: tuple[Event, ...]) -> Event:
    return window[-1]


def total(state: int, event: Event) -> int:
    return state + event.number


def totals(one: int, other: int) -> int:
    return one + other


def made(window: lt.Window, state: int) -> Event:
    return Event(window.key[0], state, window.start)


def listed(window: lt.Window, events: tuple[Event, ...]) -> list[Event]:
    return list(events)


def timer(function: Any, ttl: Any = None) -> Callable[[Any, Any], Any]:
    return lambda events, _: events.flat_scan("step", function, Asked(), timer=asks, on_timer=called, ttl=ttl)


def windowed(windows: Any, wait: Any, result: str) -> Callable[[Any, Any], Any]:
    def write(events: Any, _: Any) -> Any:
        window = events.window("step", windows, time=lt.event_time("at", wait=wait, late="drop"))
        return window.apply(listed) if result == "apply" else window.fold(total, 0, made, merge=totals)

    return write


MINUTE, LONG = lt.millis(60), lt.hours(1)
AT = lt.event_time("at", wait=lt.millis(40), late="drop")
NEAR: dict[str, Any] = {"before": lt.millis(5), "after": lt.millis(5), "time": AT}
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "a timer that is put off": timer(put_off),
    "a timer that is put off and cancelled": timer(put_off_or_not),
    "a timer that is put on": timer(put_on),
    "a timer that is put on and off": timer(to_and_fro),
    "a timer of keys that are forgotten": timer(put_off, MINUTE),
    "a scan": lambda events, _: events.scan("step", counted, 0, ttl=LONG),
    "a scan whose state is none now and then": lambda events, _: events.scan("step", toggled, False, ttl=LONG),
    "a scan of keys that are forgotten": lambda events, _: events.scan("step", counted, 0, ttl=MINUTE),
    "a scan beside a broadcast": lambda events, others: events.scan(
        "step", beside, 0, broadcast=others().broadcast("newest", newest, 0), ttl=LONG
    ),
    "deduplicate": lambda events, _: events.deduplicate("step", within=lt.millis(7)),
    "deduplicate, hardly ever": lambda events, _: events.deduplicate("step", within=LONG),
    "last": lambda events, _: events.last(3, ttl=LONG, name="step").map(ended, name="ended"),
    "reduce": lambda events, _: events.reduce("step", lambda one, other: other, ttl=LONG),
    "sessions": windowed(lt.session(lt.millis(11)), LONG, "fold"),
    "sessions that keep their records": windowed(lt.session(lt.millis(11)), LONG, "apply"),
    "sessions that close": windowed(lt.session(lt.millis(11)), lt.millis(30), "fold"),
    "windows": windowed(lt.tumbling(lt.millis(50)), lt.millis(30), "fold"),
    "windows that keep their records": windowed(lt.tumbling(lt.millis(50)), lt.millis(30), "apply"),
    "a join": lambda events, others: events.join("step", others().key_by("key"), pair, **NEAR),
    "a join of records that come alone": lambda events, others: events.join(
        "step", others().key_by("key"), maybe_pair, how="outer", **NEAR
    ),
    "join_asof": lambda events, others: events.join_asof(
        "step", others().key_by("key"), pair, how="inner", time=AT, back=lt.millis(9)
    ),
    "a table": lambda events, others: events.join_table(
        "step", others().map(gone).key_by("key").table("rows", deleted="gone", ttl=LONG), with_row, how="left"
    ),
}
"""By what it is a step by key, beside another stream that it may read."""


def a_plan(write: Callable[[Any, Any], Any]) -> Plan:
    flow = lt.Flow("bounds")

    def read(name: str) -> Any:
        return flow.read(name, lt.kafka(name, lt.json(Event)))

    write(read("events").key_by("key"), lambda: read("others")).write("out", lt.kafka("out", lt.json(Event)))
    return compile_flow(flow, units=8, parallelism=1, slack_ms=1)


def log(records: int = RECORDS) -> Iterator[tuple[int, Event]]:
    """By tick: a key that comes once, and holds the head of all that is due; a busy one; others that come once."""
    yield FIRST, Event(0, 1, BEGAN + timedelta(milliseconds=FIRST))
    for number in range(1, records):
        # 0, 20, 10, 40, 30, ...: every other one puts two sessions together.
        moment = BEGAN + timedelta(milliseconds=FIRST + 10 * (number + (1 if number % 2 else -1)))
        key = 1_000 + number if number % 40 == 0 else 1
        yield FIRST + number * 10, Event(key, number, moment)


def run(program: Program, events: Iterable[tuple[int, Event]]) -> int:
    """Feed a log record by record, each to all streams, and prune as min time would; return where it ends."""
    entries = [vertex for vertex in program.plan.vertices if vertex.is_exchange and vertex.level == program.level]
    tick = FIRST
    for tick, event in events:
        at = OrderKey(tick, 0, tick, (), 7).packed()
        for place, entry in enumerate(entries):
            stream = Event(event.key, event.number + place, event.at)
            row = gone(stream) if entry.gives is Gone else stream
            units = range(8) if entry.name == "newest" else [event.key % 8]
            for unit in units:
                program.feed(entry.id, Batch([with_unit(at, unit)], [unit], [row]))
        program.advance(tick + 1)
        program.prune(tick + 1)
    return tick + 1


def with_unit(at: bytes, unit: int) -> bytes:
    key = OrderKey.of(at)
    return OrderKey(key.tick, key.front, key.sequence, (unit + 1,), key.trace).packed()


def places(root: object) -> int:
    """The number of places in all containers that steps have put values into."""
    found, seen, left = 0, set[int](), [root]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, Plan):
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            found += len(each)
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset | deque):
            found += len(each)
            left += each
        elif type(each).__module__.startswith("lowtide.core."):
            found += 1
            names = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
            left += [getattr(each, name) for name in names if hasattr(each, name)]
            left += vars(each).values() if hasattr(each, "__dict__") else ()
    return found


def is_bounded(name: str, grouping: str = "optimistic", log: Callable[[], Iterable[tuple[int, Event]]] = log) -> bool:
    """True if a step that has gone through a log keeps at most twice as much as a restored one, and `SPARE`."""
    plan = a_plan(STEPS[name])
    program = Program(plan, 1, grouping)
    end = run(program, log())
    restored = Program(plan, 1, grouping)
    restored.restore(program.capture(end), end)
    return places(list(program._states.values())) <= 2 * places(list(restored._states.values())) + SPARE


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_keeps_is_bounded_by_what_a_snapshot_has(name: str, grouping: str) -> None:
    assert is_bounded(name, grouping)


def to_and_back(keys: int = RECORDS) -> Iterator[tuple[int, Event]]:
    """Many keys at once, which then go one by one, but for one; of a table the row that comes beside says so."""
    for key in range(keys + 1):
        yield FIRST + key, Event(key, 1, BEGAN)
    for key in range(keys):
        yield FIRST + keys + 1 + key, Event(key, 0, BEGAN)


def put_together() -> Iterator[tuple[int, Event]]:
    """A session of each of many keys, which close; many of one key hours ahead, half of which others take in."""
    for number in range(RECORDS):
        yield FIRST + number, Event(2 + number, number, BEGAN + timedelta(milliseconds=FIRST))
    for number in range(RECORDS):
        ahead = timedelta(hours=10, milliseconds=FIRST + 10 * (number + (1 if number % 2 else -1)))
        yield FIRST + RECORDS + number, Event(1, number, BEGAN + ahead)
    over = FIRST + LONG // lt.millis(1) + 100
    yield over, Event(2, 0, BEGAN + timedelta(milliseconds=over))


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("a scan whose state is none now and then", to_and_back),
        ("a table", to_and_back),
        ("sessions", put_together),
        ("sessions that keep their records", put_together),
    ],
)
def test_what_is_left_is_bounded_when_less_is_alive_too(
    name: str, grouping: str, log: Callable[[], Iterable[tuple[int, Event]]]
) -> None:
    assert is_bounded(name, grouping, log)


@pytest.mark.parametrize("name", ["a scan whose state is none now and then", "a table"])
def test_keys_that_have_gone_count_as_long_as_they_wait(name: str) -> None:
    """Fewer than are left out, so all of them wait."""
    alone, rest = (Program(a_plan(STEPS[name]), 1) for _ in range(2))
    run(alone, to_and_back(0))
    run(rest, to_and_back(50))
    assert alone.kept["step"].number == rest.kept["step"].number == 1
    assert rest.kept["step"].bytes > 40 * alone.kept["step"].bytes


@pytest.mark.parametrize(
    ("name", "owner", "bound"),
    [
        ("a timer that is put on", KeyDues, "_bound"),
        ("sessions", SessionWindows, "_bound_dues"),
        ("a scan whose state is none now and then", Expiry, "_leave_out"),
    ],
)
def test_the_law_notices_what_is_left(name: str, owner: type, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what bounds them, there are as many as the log has records."""
    monkeypatch.setattr(owner, bound, lambda *_: None)
    assert not is_bounded(name)
