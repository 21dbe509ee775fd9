"""A tick may have any number of records: what they take grows as they do, in memory and in what is copied."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from types import FunctionType, ModuleType
from typing import Any

import pytest

import lowtide as lt
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.program import Program
from lowtide.flow.plan.compiler import compile_flow

RECORDS = 1_500
TICK = 1_000
MOST = 2.5
"""So much may twice as many records take, at most: it would be 4 where each took as much as all before it."""


@dataclass(frozen=True)
class Event:
    key: str
    number: int
    at: datetime


@dataclass(frozen=True)
class Found:
    key: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Different:
    key: str
    numbers: int


def all_numbers(state: tuple[int, ...], event: Event) -> tuple[int, ...]:
    return (*state, event.number)


def both(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return one + other


def found(window: lt.Window, state: tuple[int, ...]) -> Found:
    return Found(window.key[0], state)


def in_window(windows: Any, what: str) -> Callable[[Any], Any]:
    def write(events: Any) -> Any:
        windowed = events.window("step", windows)
        if what == "fold":
            return windowed.fold(all_numbers, (), found, merge=both)
        if what == "collect":
            return windowed.aggregate(Found, numbers=lt.agg.collect("number"))
        return windowed.aggregate(Different, numbers=lt.agg.count_distinct("number"))

    return write


def noted(state: tuple[int, ...], event: Event) -> tuple[tuple[int, ...], list[Event]]:
    return all_numbers(state, event), []


def asks(_: tuple[int, ...]) -> datetime | None:
    return None


def called(state: tuple[int, ...], at: datetime) -> tuple[tuple[int, ...], list[Event]]:
    return state, []


TUMBLING, SESSION = lt.tumbling(lt.hours(1)), lt.session(lt.hours(1))
STEPS: dict[str, tuple[Callable[[Any], Any], type]] = {
    "a window that collects": (in_window(TUMBLING, "collect"), Found),
    "a window that counts what differs": (in_window(TUMBLING, "count_distinct"), Different),
    "a window whose state is all of them": (in_window(TUMBLING, "fold"), Found),
    "a session that collects": (in_window(SESSION, "collect"), Found),
    "a session that counts what differs": (in_window(SESSION, "count_distinct"), Different),
    "a session whose state is all of them": (in_window(SESSION, "fold"), Found),
    "a key that counts what differs": (
        lambda events: events.aggregate("step", Different, numbers=lt.agg.count_distinct("number")),
        Different,
    ),
    "a scan with a timer": (
        lambda events: events.flat_scan("step", noted, (), timer=asks, on_timer=called, returns=Event),
        Event,
    ),
}


def bytes_of(name: str, grouping: str, records: int) -> int:
    """Bytes that a step keeps after so many records of one key and one tick, before it is pruned."""
    flow, (write, made) = lt.Flow("one"), STEPS[name]
    stream = write(flow.read("in", lt.kafka("in", lt.json(Event))).key_by("key"))
    stream.write("out", lt.kafka("out", lt.json(made)))
    program = Program(compile_flow(flow, units=8, parallelism=1, slack_ms=1), 1, grouping)
    (entry,) = [vertex.id for vertex in program.plan.vertices if vertex.is_exchange]
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=TICK)
    rows = [Event("a", number * 7_919 % 100_003, at) for number in range(records)]
    ats = [OrderKey(TICK, 0, number, (), 7).packed() for number in range(records)]
    before = bytes_below(program, rows, ats)
    for start in range(0, records, 50):
        program.feed(entry, Batch(ats[start : start + 50], [3] * 50, rows[start : start + 50], None, [TICK]))
    program.advance(TICK + 1)
    return bytes_below(program, rows, ats) - before


def bytes_below(program: Program, *given: list[Any]) -> int:
    """Bytes of all objects that can be reached from a program, without those that it was given.

    What other threads of the process keep is not among them, as it would be if memory were measured.
    """
    seen = {id(each) for each in reached(given, set())}
    return sum(map(sys.getsizeof, reached([program], seen)))


def reached(roots: Any, seen: set[int]) -> list[Any]:
    """All objects that can be reached and are not seen yet; of functions what they have closed over."""
    found, waiting = [], list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type | ModuleType):
            continue
        seen.add(id(each))
        found.append(each)
        waiting += (each.__closure__ or ()) if isinstance(each, FunctionType) else gc.get_referents(each)
    return found


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize("name", STEPS)
def test_twice_as_many_records_of_a_tick_take_twice_the_memory(name: str, grouping: str) -> None:
    assert bytes_of(name, grouping, 2 * RECORDS) <= MOST * bytes_of(name, grouping, RECORDS)


@pytest.mark.parametrize("aggregate", [lt.agg.collect("number"), lt.agg.count_distinct("number")])
def test_a_value_more_copies_few_of_those_before_it(aggregate: lt.agg.Aggregate) -> None:
    """All together n log n, be it one by one or two states at a time; a state is as it was, whatever comes of it."""
    copied, state, kept = 0, aggregate.initial, []
    values = [number * 7_919 % 100_003 for number in range(4_096)]
    for value in values:
        after = aggregate.add(state, value)
        copied += sum(len(chunk) for chunk in after if not any(chunk is each for each in state))
        state = after
        kept.append(state)
    assert copied <= 13 * len(values)
    assert max(map(len, kept)) <= 13
    assert aggregate.merge is not None
    merged = reduce(aggregate.merge, [aggregate.add(aggregate.initial, value) for value in values])
    assert max(map(len, merged)) <= len(values)
    for number in (1, 2, 3, 1_000, 4_096):
        expected: Any = tuple(values[:number]) if aggregate.finish(kept[0]) != 1 else number
        assert aggregate.finish(kept[number - 1]) == expected
    assert aggregate.finish(merged) == aggregate.finish(state)
