"""Forgetting: whose state is none, when a key leaves memory, and that nothing else looks at all keys for that."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide as lt
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.keyed.beside import BesideNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, OrderKey
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.grouping import Grouping
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.time.durations import ticks_of

END = 1 << 40


@dataclass(frozen=True)
class Event:
    key: int
    number: int


@dataclass(frozen=True)
class Box:
    value: float = 0.0
    named: dict[str, int] = field(default_factory=dict)


def boxed(box: Box, event: Event) -> tuple[Box, Event]:
    return RETURNED[event.number], event


RETURNED = [
    Box(),
    Box(0.0, {}),
    Box(-0.0),
    Box(1.0),
    Box(0.0, {"a": 1}),
]


def toggled(state: bool, event: Event) -> tuple[bool, Event]:
    return not state, event


def program(write: Callable[[Any], Any], grouping: str = "optimistic") -> Program:
    flow = lt.Flow("test")
    events = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    write(events).write("out", lt.kafka("out", lt.json(Event)))
    return Program(compile_flow(flow, units=8, parallelism=1, slack_ms=1), 1, grouping)


def grouping_of(write: Callable[[Any], Any]) -> Grouping:
    (grouping,) = program(write)._states.values()
    assert isinstance(grouping, Grouping)
    return grouping


def batch(events: Iterable[tuple[int, int, int]]) -> Batch:
    """Records by (tick, key, number), one a tick and key."""
    listed = list(events)
    ats = [OrderKey(tick, 0, tick * 1_000_000 + key, (), 7).packed() for tick, key, _ in listed]
    return Batch(ats, [key % 8 for _, key, _ in listed], [Event(key, number) for _, key, number in listed])


def test_a_state_equal_to_the_initial_one_is_none() -> None:
    """Of the same type, equal, with the same columns: 0.0 and -0.0 are equal, but written out they differ."""
    grouping = grouping_of(lambda events: events.scan("box", boxed, Box()))
    grouping.insert(batch([(1, number, number) for number in range(len(RETURNED))]))
    captured = {key: state for keys in grouping.capture(2).values() for key, state in keys}
    assert {key: repr(state) for key, state in captured.items()} == {key: repr(RETURNED[key]) for key in (2, 3, 4)}
    assert grouping.look(1, 2) is NOTHING
    grouping.prune(2)
    assert set(grouping._groups) == {2, 3, 4}
    grouping.restore({3: [(3, Box()), (11, Box(7.0))]}, 2)
    assert set(grouping._groups) == {2, 4, 11}, "nor is it kept from a snapshot"


def test_a_state_that_is_none_stays_while_a_late_record_may_need_it() -> None:
    grouping = grouping_of(lambda events: events.scan("toggled", toggled, False))
    grouping.insert(batch([(1, 0, 1), (5, 0, 5)]))
    grouping.prune(4)
    assert set(grouping._groups) == {0}
    grouping.insert(batch([(4, 0, 4)]))
    assert grouping.capture(6)[0] == [(0, True)]
    grouping.prune(6)
    grouping.insert(batch([(7, 0, 7)]))
    grouping.prune(8)
    assert not grouping._groups


WRITES: dict[str, Callable[[Any], Any]] = {
    "toggled": lambda events: events.scan("step", toggled, False),
    "scan": lambda events: events.scan("step", toggled, False, ttl=lt.millis(6)),
    "flat_scan": lambda events: events.flat_scan(
        "step", lambda state, event: (event.number, [event]), 0, ttl=lt.millis(6), returns=Event
    ),
    "reduce": lambda events: events.reduce("step", lambda one, other: other, ttl=lt.millis(6)),
    "aggregate": lambda events: events.aggregate("step", Event, ttl=lt.millis(6), number=lt.agg.count()),
    "deduplicate": lambda events: events.deduplicate("step", within=lt.millis(6)),
    "last": lambda events: events.last(3, ttl=lt.millis(6)).map(lambda window: window[-1], name="m", returns=Event),
    "last of one": lambda events: events.last(1).map(lambda window: window[-1], name="m", returns=Event),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_keys_that_come_once_do_not_stay_in_memory(write: Callable[[Any], Any]) -> None:
    """Of twelve thousand keys never more than a few wait, and there are no more objects in the end than early on."""
    grouping = grouping_of(write)
    most, early = 0, 0
    for tick in range(600):
        # A second record brings a toggled state back to the initial one.
        for _ in range(2):
            grouping.insert(batch([(2 * tick + _, tick * 20 + place, 1) for place in range(20)]))
        grouping.prune(2 * tick + 2)
        most = max(most, len(grouping._groups))
        if tick == 100:
            gc.collect()
            early = len(gc.get_objects())
    gc.collect()
    assert most <= 120
    assert len(gc.get_objects()) < early + 500
    grouping.prune(END)
    assert not grouping._groups
    assert not any(grouping.capture(END).values())


def test_a_prune_looks_at_no_keys_but_those_that_are_due() -> None:
    grouping = grouping_of(lambda events: events.scan("step", toggled, False, ttl=lt.millis(1_600)))
    looks = 0
    state = grouping._state

    def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return state(*arguments)

    grouping._state = counted  # type: ignore[assignment, method-assign]
    grouping.insert(batch([(1, key, 1) for key in range(1_000)]))
    for tick in range(2, 1_600):
        grouping.insert(batch([(tick, 5_000, 1)]))
        grouping.prune(tick)
    assert looks < 1_000 + 2 * 1_600
    assert len(grouping._groups) == 1_001
    grouping.prune(1_601 + 100)
    assert len(grouping._groups) <= 1
    assert looks < 2_000 + 2 * 1_600


def test_a_key_that_is_touched_again_is_kept() -> None:
    grouping = grouping_of(WRITES["reduce"])
    for tick in range(0, 100, 5):
        grouping.insert(batch([(tick, 0, tick)]))
        grouping.prune(tick + 1)
        assert set(grouping._groups) == {0}
    grouping.prune(101)
    assert not grouping._groups


def taken_back(event: tuple[int, int, int]) -> Batch:
    """The tombstone of a record."""
    one = batch([event])
    return Batch(one.ats, one.units, one.rows, [True])


@pytest.mark.parametrize("name", ["scan", "flat_scan", "reduce", "aggregate", "deduplicate", "last"])
def test_a_key_whose_newest_record_is_taken_back_is_forgotten_too(name: str) -> None:
    """Its time had come while that record stood above the prune time, so that it waited no more."""
    grouping = grouping_of(WRITES[name])
    for tick, pruned in ((1, 2), (5, 6), (9, 7)):
        grouping.insert(batch([(tick, 0, 1)]))
        grouping.prune(pruned)
    grouping.insert(taken_back((9, 0, 1)))
    grouping.prune(END)
    assert not grouping._groups


def outcome(made: list[Batch | None]) -> list[tuple[Any, ...]]:
    pending = Pending("outputs")
    for each in made:
        if each is not None:
            pending.add(each)
    return [(at, row) for each in pending.release(END) for at, row in zip(each.ats, each.rows, strict=True)]


def states(grouping: Grouping, tick: int) -> dict[Any, Any]:
    return {key: repr(state) for keys in grouping.capture(tick).values() for key, state in keys}


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([*WRITES.values()]), st.integers(0, 1 << 30))
def test_what_is_forgotten_while_records_come_late_changes_nothing(write: Callable[[Any], Any], seed: int) -> None:
    """Records in any order, prunes and restores between, against one that has all in order; snapshots share parts."""
    dice = random.Random(seed)
    ticks = sorted(dice.sample(range(80), dice.randint(1, 40)))
    events = [(tick, dice.randrange(3), dice.randrange(5)) for tick in ticks]
    expected = grouping_of(write)
    in_order = [expected.insert(batch([event]))[0] for event in events]
    grouping, waiting, found, come = grouping_of(write), list(events), list[Batch | None](), 0
    parts: dict[int, list[Any]] = {}
    taken = FIRST_TICK
    while waiting:
        event = dice.choice(waiting[:8])
        waiting.remove(event)
        found.append(grouping.insert(batch([event]))[0])
        come = max(come, event[0])
        limit = min((tick for tick, _, _ in waiting), default=80)
        if dice.random() < 0.4:
            grouping.prune(dice.randint(max(0, limit - 5), limit))
        if dice.random() < 0.3 and come < limit:
            restored = grouping_of(write)
            parts |= grouping.capture(limit, taken)
            restored.restore(parts, limit)
            grouping, taken = restored, limit
    assert outcome(found) == outcome(in_order)
    for tick in (80, 84, 90):
        assert states(grouping, tick) == states(expected, tick)
    grouping.prune(90)
    assert set(grouping._groups) == {key for keys in grouping.capture(90).values() for key, _ in keys}


def newest(seen: int, event: Event) -> int:
    return event.number


def compared(state: int, event: Event, seen: int) -> tuple[int, Event]:
    return event.number, Event(event.key, state)


def beside(events: Any) -> Any:
    rates = events._flow.read("rates", lt.kafka("rates", lt.json(Event))).broadcast("rate", newest, 0)
    return events.scan("step", compared, 0, ttl=lt.millis(6), broadcast=rates)


def test_a_scan_beside_a_broadcast_forgets_too() -> None:
    level = program(beside)
    (node,) = level._states.values()
    assert isinstance(node, BesideNode)
    entry = next(vertex.id for vertex in level.plan.vertices if vertex.name == "events/by-key")
    given: list[Event] = []

    def run(tick: int, number: int) -> None:
        level.feed(entry, batch([(tick, 0, number)]))
        feed = level.advance(tick + 1)
        given.extend(row for _, each in feed.delivers for row in each.rows)
        level.prune(tick + 1)

    for tick, number in ((1, 5), (6, 7), (12, 8), (13, 0)):
        run(tick, number)
    assert [event.number for event in given] == [0, 5, 0, 8], "exactly six ticks later it is gone"
    assert not node._groups, "the initial state is none"
    run(20, 3)
    assert node.capture(25)[0] == [(0, (3, 20))]
    assert not any(node.capture(26).values())
    level.prune(26)
    assert not node._groups


def test_what_is_exactly_so_old_is_that_old() -> None:
    assert [ticks_of(timedelta(milliseconds=ms), 5) for ms in (1, 5, 5.001, 6, 10)] == [1, 1, 2, 2, 2]


def test_a_step_that_did_not_forget_counts_from_its_snapshot_on() -> None:
    grouping = grouping_of(WRITES["scan"])
    grouping.restore({0: [(0, (True, None)), (8, (True, 3))]}, 10)
    assert grouping.capture(10)[0] == [(0, (True, 9))], "the other was six ticks old already"


@pytest.mark.parametrize("write", [WRITES["scan"], beside], ids=["scan", "beside a broadcast"])
def test_a_step_that_did_not_forget_counts_from_one_snapshot_in_all_lives(write: Callable[[Any], Any]) -> None:
    """A life that begins from a later snapshot, which has shared what did not change, has the same ticks."""
    parts: dict[int, list[Any]] = {0: [(0, (True, None))], 1: [(1, (True, 9))]}
    for start, taken in ((10, 12), (12, 14)):
        (step,) = program(write)._states.values()
        step.restore(parts, start)
        step.prune(taken)
        changed = step.capture(taken, start)
        parts = parts | changed
        assert step.capture(taken) == parts, "what is left out is as it was"
        assert parts[0] == [(0, (True, 9))]
    assert 0 not in changed, "it is written once"


def test_a_step_in_order_holds_nothing_of_what_it_has_forgotten() -> None:
    level = program(WRITES["scan"], "ordered")
    (entry,) = [vertex.id for vertex in level.plan.vertices if vertex.is_exchange]
    for tick in range(0, 200, 7):
        level.feed(entry, batch([(tick, tick, 1)]))
        level.advance(tick + 1)
        level.prune(tick + 1)
    (grouping,) = level._states.values()
    assert isinstance(grouping, Grouping)
    assert len(grouping._groups) == 1
    assert isinstance(level.advance(END), Feed)
