"""A scan beside a broadcast: its order, and what pruning and snapshots keep of both sides."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lives import OneLife, Parts, merged

from lowtide import Flow, json, kafka
from lowtide.core.operators.keyed.beside import BESIDE, KEYED, BesideNode
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, OrderKey, Position, tick_of
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.steps.steps import Broadcast, Scan
from lowtide.local.run import Message
from lowtide_snapshots.format.parts import SHARED_UNIT

UNITS = (0, 5)


@dataclass(frozen=True)
class Event:
    key: str
    number: int


@dataclass(frozen=True)
class Seen:
    own: tuple[int, ...]
    beside: tuple[int, ...]


def look(state: Seen, event: Event, beside: tuple[int, ...]) -> tuple[Seen, Seen]:
    state = Seen((*state.own, event.number), beside)
    return state, state


def fold(state: tuple[int, ...], event: Event) -> tuple[int, ...]:
    if event.number == 31:
        raise ValueError("thirty-one")
    return (*state, event.number) if event.number % 3 else state


def scan() -> BesideNode:
    initial: tuple[int, ...] = ()
    flow = Flow("test")
    broadcast = flow.read("more", kafka("more", json(Event))).broadcast("fold", fold, initial)
    keyed = flow.read("events", kafka("events", json(Event))).key_by("key")
    keyed.scan("look", look, Seen((), ()), broadcast=broadcast).write("out", kafka("out", json(Seen)))
    plan = compile_flow(flow, parallelism=1)
    (vertex,), (beside,) = plan.those(Scan), plan.those(Broadcast)
    node = BesideNode(vertex, beside, ["key"])
    node.lead([(Taken(vertex), 0)])
    return node


class Taken(Node):
    """Takes what a node gives for what it delivers."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        feed.delivers.append((0, batch))


def advanced(beside: BesideNode, min_time: int) -> Feed:
    feed = Feed()
    beside.advance(min_time, feed)
    return feed


def give(to: BesideNode, events: list[tuple[int, int, str]]) -> None:
    """Events by (tick, port, key); a record's number is its tick; a broadcast's comes once for each unit."""
    for tick, port, key in events:
        units = UNITS if port == BESIDE else (UNITS[key == "b"],)
        ats = [OrderKey(tick, port, tick, (unit + 1,) if port == BESIDE else ()).packed() for unit in units]
        rows: list[Any] = [Event(key, tick) for _ in units]
        to.take(Batch(ats, list(units), rows), port, Feed())


def said(feed: Feed) -> list[Any]:
    return [(tick_of(at), row) for _, each in feed.delivers for at, row in zip(each.ats, each.rows, strict=True)]


logs = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([KEYED, BESIDE]), st.sampled_from(["a", "b"])),
    max_size=16,
    unique_by=lambda event: event[0],
)


@settings(deadline=None)
@given(logs, st.lists(st.integers(0, 31), min_size=3, max_size=3).map(sorted), st.data())
def test_pruning_and_a_snapshot_change_nothing_above_their_tick(
    events: list[tuple[int, int, str]], times: list[int], data: st.DataObject
) -> None:
    """R14: pruned at one tick, captured at a later one, released up to one later still."""
    pruned_at, captured_at, released = times
    whole, pruned, restored = scan(), scan(), scan()
    arrivals = data.draw(st.permutations(events))
    for each in (whole, pruned):
        give(each, arrivals)
    expected = said(advanced(whole, 32))
    found = [each for tick in (pruned_at, captured_at, released) for each in said(advanced(pruned, tick))]
    pruned.prune(pruned_at)
    captured, beside = pruned.capture(captured_at), pruned.capture_beside(captured_at)
    assert found + said(advanced(pruned, 32)) == expected
    restored.restore(captured, captured_at)
    restored.restore_beside(beside, captured_at)
    give(restored, [event for event in arrivals if event[0] >= captured_at])
    assert said(advanced(restored, 32)) == [each for each in expected if each[0] >= captured_at]


def test_each_record_sees_the_broadcast_as_of_its_place() -> None:
    beside = scan()
    give(beside, [(4, KEYED, "a"), (2, KEYED, "b"), (1, BESIDE, "x"), (5, BESIDE, "x"), (7, KEYED, "a")])
    found = [(tick, seen.beside) for tick, seen in said(advanced(beside, 8))]
    assert found == [(2, (1,)), (4, (1,)), (7, (1, 5))]


@dataclass(frozen=True)
class Rates:
    by_key: dict[str, int]


def test_a_broadcast_costs_a_worker_one_state_and_one_call_a_record_also_after_a_restore() -> None:
    """And a snapshot has it once, however many hash units and workers there are."""
    called: list[int] = []

    def rate(rates: Rates, event: Event) -> Rates:
        called.append(event.number)
        return Rates({**rates.by_key, event.key: event.number})

    def rated(count: int, event: Event, rates: Rates) -> tuple[int, Event]:
        return count + 1, Event(event.key, rates.by_key.get(event.key, 0))

    flow = Flow("test")
    broadcast = flow.read("more", kafka("more", json(Event))).broadcast("rates", rate, Rates({}))
    keyed = flow.read("events", kafka("events", json(Event))).key_by("key")
    keyed.scan("rated", rated, 0, broadcast=broadcast).write("out", kafka("out", json(Event)))
    plan, parts = compile_flow(flow, units=128, lanes=2, parallelism=2, slack_ms=1), Parts()
    for life in range(3):
        lived, start = OneLife(plan, Random(life), "ordered", parts, 1_000 * life), 1_000 * life
        log = [Message(Position(0, start + n), start + n, None, b'{"key":"k%d","number":1}' % n) for n in range(9)]
        called.clear()
        lived.feed("more", log)
        lived.reach(start + 1_000)
        parts = merged({}, lived.captured(start + 1_000, FIRST_TICK))
        assert len(called) == len(log) * plan.parallelism
        assert list(parts["rates"]) == [SHARED_UNIT]
        for program in lived.levels[0]:
            program.prune(start + 1_000)
        gc.collect()
        there = [each for each in gc.get_objects() if type(each) is Rates and each.by_key]
        assert len(there) == plan.parallelism, "one state for each worker"
        del lived, there


def test_a_record_that_a_broadcast_fails_with_is_one_fault_for_all_units() -> None:
    beside = scan()
    give(beside, [(30, KEYED, "a"), (31, BESIDE, "x"), (32, KEYED, "b")])
    feed = advanced(beside, 33)
    assert [(tick, seen.beside) for tick, seen in said(feed)] == [(30, ()), (32, ())]
    (faults,) = feed.faults
    assert [fault.failure.error for fault in faults.rows] == ["raised ValueError: thirty-one"]
    assert faults.units == [0]
