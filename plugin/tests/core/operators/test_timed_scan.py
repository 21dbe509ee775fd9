"""Timers at workers: when keys are called, and what pruning, snapshots, parts and lives that end keep of that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide as lt
from lowtide.core.operators.faults.failure import UserError
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import CLOCK, OrderKey, tick_of
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.format.parts import PartHead, decode_part, encode_part

UNIT = {"a": 3, "b": 5, "c": 3}
SLACK_MS = 2
TTL = 5
END = 80
BEGAN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    key: str
    after: int
    times: int


@dataclass(frozen=True)
class Asked:
    """To be called at a moment, which may be over, and so often again, a tick and a half later each time."""

    until: datetime | None = None
    times: int = 0


@dataclass(frozen=True)
class Call:
    at: datetime
    times: int


def moment(tick: float) -> datetime:
    return BEGAN + timedelta(milliseconds=tick * SLACK_MS)


def on_event(asked: Asked, event: Event) -> tuple[Asked, list[Call]]:
    return (Asked(), []) if event.times == 0 else (Asked(moment(event.after), event.times), [])


def asks(asked: Asked) -> datetime | None:
    return asked.until


def on_timer(asked: Asked, now: datetime) -> tuple[Asked, Iterator[Call]]:
    after = Asked(now + timedelta(milliseconds=3), asked.times - 1) if asked.times > 1 else Asked()
    return after, iter([Call(now, asked.times)])


def left(asked: Asked) -> list[Call]:
    return [Call(asked.until or BEGAN, asked.times)]


def a_plan_of_leaving() -> Plan:
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    scan = keyed.flat_scan("scan", on_event, Asked(), on_forgotten=left, ttl=lt.millis(TTL * SLACK_MS))
    scan.write("out", lt.kafka("out", lt.json(Call)))
    return compile_flow(flow, parallelism=1, units=8, slack_ms=SLACK_MS)


def a_plan(ttl: bool, timer: Any = asks) -> Plan:
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    kept = lt.millis(TTL * SLACK_MS) if ttl else None
    scan = keyed.flat_scan("scan", on_event, Asked(), timer=timer, on_timer=on_timer, ttl=kept)
    scan.write("out", lt.kafka("out", lt.json(Call)))
    return compile_flow(flow, parallelism=1, units=8, slack_ms=SLACK_MS)


class Taken(Node):
    """Takes what a node gives for what it delivers."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        feed.delivers.append((0, batch))


def a_scan(plan: Plan) -> TimedScanNode:
    (node,) = (node for node in Program(plan, 1)._nodes.values() if isinstance(node, TimedScanNode))
    node._followers = [(Taken(node.vertex), 0, False)]
    return node


Arrival = tuple[int, str, int, int]
"""Tick, key, the tick whose moment the key asks for, and how often it wants to be called."""

Given = tuple[int, int, int, Call]
"""Tick, front, hash unit and output."""


def given_to(node: TimedScanNode, arrivals: list[Arrival]) -> None:
    for tick, key, after, times in arrivals:
        at = OrderKey(tick, 0, tick).packed()
        node.take(Batch([at], [UNIT[key]], [Event(key, after, times)]), 0, Feed())


def advanced(node: TimedScanNode, min_time: int) -> list[Given]:
    feed = Feed()
    node.advance(min_time, feed)
    assert not feed.faults
    given = [each for _, batch in feed.delivers for each in zip(batch.ats, batch.units, batch.rows, strict=True)]
    assert [at for at, _, _ in given] == sorted({at for at, _, _ in given})
    return [(tick_of(at), OrderKey.of(at).front, unit, row) for at, unit, row in given]


def expected(arrivals: list[Arrival], ttl: bool) -> list[Given]:
    """Tick by tick, key by key: a key is called before the tick's record, for the moment it asks for."""
    found = []
    asked: dict[str, tuple[int, float, int]] = {}
    touched: dict[str, int] = {}
    for tick in range(END):
        due = [(UNIT[key], now, key, times) for key, (at, now, times) in asked.items() if at == tick]
        for unit, now, key, times in sorted(due):
            del asked[key]
            if ttl and tick - touched[key] >= TTL:
                continue
            touched[key] = tick
            found.append((tick, CLOCK, unit, Call(moment(now), times)))
            if times > 1:
                asked[key] = max(-int(-(now + 1.5) // 1), tick + 1), now + 1.5, times - 1
        for at, key, after, times in arrivals:
            if at == tick:
                touched[key] = tick
                asked.pop(key, None)
                if times:
                    asked[key] = max(after, tick + 1), after, times
    return found


def by_way_of_parts(plan: Plan, captured: dict[int, list[Any]]) -> dict[int, list[Any]]:
    step = saved_steps(plan, 1)["scan"]
    found = {}
    for unit, entries in captured.items():
        head = PartHead("test", "scan", step.kind, unit, 1, 2, "000003-0007")
        _, read = decode_part(encode_part(head, step.table(entries)), head.name)
        found[unit] = step.entries(read)
    return found


logs = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(list(UNIT)), st.integers(0, 40), st.integers(0, 3)),
    max_size=12,
    unique_by=lambda arrival: arrival[0],
)
times = st.lists(st.integers(0, 40), min_size=3, max_size=3).map(sorted)


@settings(deadline=None)
@given(logs, times, st.booleans(), st.data())
def test_each_key_is_called_when_it_asks_whatever_is_pruned_and_saved(
    arrivals: list[Arrival], ticks: list[int], ttl: bool, data: st.DataObject
) -> None:
    """Pruned at one tick, captured at a later one (R14), advanced to one later still; parts have no timers."""
    pruned_at, captured_at, released = ticks
    plan = a_plan(ttl)
    node, restored = a_scan(plan), a_scan(plan)
    given_to(node, data.draw(st.permutations(arrivals)))
    found = [each for tick in (pruned_at, captured_at, released) for each in advanced(node, tick)]
    node.prune(pruned_at)
    captured = node.capture(captured_at)
    assert found + advanced(node, END) == expected(arrivals, ttl)
    restored.restore(by_way_of_parts(plan, captured), captured_at)
    given_to(restored, [each for each in arrivals if each[0] >= captured_at])
    assert advanced(restored, END) == [each for each in expected(arrivals, ttl) if each[0] >= captured_at]


def leavers(arrivals: list[Arrival]) -> list[Given]:
    """Tick by tick: a key leaves where it has had no record for so long, unless its last one left nothing."""
    found = []
    states: dict[str, tuple[int, int, int]] = {}
    for tick in range(END):
        gone = [(UNIT[key], key) for key, (touched, _, _) in states.items() if tick - touched == TTL]
        for unit, key in sorted(gone):
            _, after, times = states.pop(key)
            found.append((tick, CLOCK, unit, Call(moment(after), times)))
        for at, key, after, times in arrivals:
            if at == tick:
                states.pop(key, None)
                if times:
                    states[key] = tick, after, times
    return found


@settings(deadline=None)
@given(logs, times, st.data())
def test_each_key_that_is_forgotten_leaves_once_whatever_is_pruned_and_saved(
    arrivals: list[Arrival], ticks: list[int], data: st.DataObject
) -> None:
    """As above: a snapshot at the very tick at which a key leaves still has it."""
    pruned_at, captured_at, released = ticks
    plan = a_plan_of_leaving()
    node, restored = a_scan(plan), a_scan(plan)
    given_to(node, data.draw(st.permutations(arrivals)))
    found = [each for tick in (pruned_at, captured_at, released) for each in advanced(node, tick)]
    node.prune(pruned_at)
    captured = node.capture(captured_at)
    assert found + advanced(node, END) == leavers(arrivals)
    restored.restore(by_way_of_parts(plan, captured), captured_at)
    assert restored.due_tick == min((each[0] for each in leavers(
        [each for each in arrivals if each[0] < captured_at]) if each[0] >= captured_at), default=None)  # fmt: skip
    given_to(restored, [each for each in arrivals if each[0] >= captured_at])
    assert advanced(restored, END) == [each for each in leavers(arrivals) if each[0] >= captured_at]


@settings(deadline=None)
@given(logs, times)
def test_what_has_changed_since_a_snapshot_holds_every_state_that_differs(
    arrivals: list[Arrival], ticks: list[int]
) -> None:
    node = a_scan(a_plan(ttl=False))
    given_to(node, arrivals)
    advanced(node, END)
    one, two, _ = ticks
    merged = {**node.capture(one), **node.capture(two, since=one)}
    assert {unit: rows for unit, rows in merged.items() if rows} == {
        unit: rows for unit, rows in node.capture(two).items() if rows
    }


@settings(deadline=None)
@given(logs, st.sets(st.integers(0, END - 1), max_size=3))
def test_due_is_the_tick_at_which_it_next_gives_something(arrivals: list[Arrival], restored: set[int]) -> None:
    """R6b: what is reported is never above what comes, also by a worker that has only been restored."""
    plan = a_plan(ttl=False)
    node = a_scan(plan)
    given_to(node, arrivals)
    for tick in range(END):
        advanced(node, tick)
        shown = node
        if tick in restored:
            shown = a_scan(plan)
            shown.restore(by_way_of_parts(plan, node.capture(tick)), tick)
        dues = [at for at, *_ in expected([each for each in arrivals if each[0] < tick], ttl=False) if at >= tick]
        assert shown.due_tick == min(dues, default=None)


@settings(deadline=None)
@given(logs)
def test_keys_that_ask_for_nothing_more_take_no_memory(arrivals: list[Arrival]) -> None:
    node = a_scan(a_plan(ttl=False))
    given_to(node, arrivals)
    advanced(node, END)
    node.prune(END)
    assert not node._groups
    assert node.due_tick is None
    assert node.timers.number == node.timers.bytes == 0


def broken(asked: Asked) -> datetime | None:
    raise LookupError(asked)


def test_a_timer_that_fails_with_a_state_of_a_snapshot_ends_the_life() -> None:
    node = a_scan(a_plan(ttl=False, timer=broken))
    with pytest.raises(UserError, match=r'step "scan": raised LookupError'):
        node.restore({3: [("a", Asked(moment(3), 1))]}, 3)


@dataclass(frozen=True)
class Odd:
    level: float
    count: int


def counted(odd: Odd, event: Event) -> tuple[Odd, list[Call]]:
    return replace(odd, count=event.times), []


def fired(odd: Odd, now: datetime) -> tuple[Odd, list[Call]]:
    return replace(odd, count=0), [Call(now, odd.count)]


def at_thirty(_odd: Odd) -> datetime:
    return moment(30)


def odd_flow() -> lt.Flow:
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    scan = keyed.flat_scan("scan", counted, Odd(math.nan, 0), timer=at_thirty, on_timer=fired)
    scan.write("out", lt.kafka("out", lt.json(Call)))
    return flow


@pytest.mark.parametrize("restored", [False, True])
def test_a_state_with_nan_is_the_initial_one_by_its_bytes_also_after_a_restore(restored: bool) -> None:
    """NaN equals only itself as an object, and what comes from a snapshot is another object."""
    plan = compile_flow(odd_flow(), parallelism=1, units=8, slack_ms=SLACK_MS)
    node = a_scan(plan)
    given_to(node, [(1, "a", 0, 2), (2, "b", 0, 2)])
    assert advanced(node, 3) == []
    if restored:
        before, node = node, a_scan(plan)
        node.restore(by_way_of_parts(plan, before.capture(3)), 3)
    given_to(node, [(5, "a", 0, 0)])
    assert advanced(node, END) == [(30, CLOCK, UNIT["b"], Call(moment(30), 2))]
    node.prune(END)
    assert not node._groups


def test_run_locally_knows_an_initial_state_with_nan_by_its_bytes_too() -> None:
    """The state that it begins with is another object, as one from a snapshot is: so nobody is called but "b"."""
    begun = {"a": Odd(float("nan"), 0)}
    given = [lt.Stamped(Event("b", 0, 2), moment(2))]
    assert odd_flow().run_locally(events=given, states={"scan": begun})["out"] == [Call(moment(30), 2)]
