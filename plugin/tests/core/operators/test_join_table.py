"""A join with a table at workers: its order, and what pruning, snapshots and parts keep of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide as lt
from lowtide.core.operators.joins.join_table import RECORDS, ROWS, TableJoinNode
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey, tick_of
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.format.parts import PartHead, decode_part, encode_part

UNIT = {"a": 3, "b": 5}


@dataclass(frozen=True)
class Event:
    key: str
    number: int


@dataclass(frozen=True)
class Row:
    id: str
    value: int
    gone: bool


@dataclass(frozen=True)
class Pair:
    number: int
    value: int | None


def pair(event: Event, row: Row | None) -> Pair:
    return Pair(event.number, None if row is None else row.value)


def a_plan(ttl: bool) -> Plan:
    flow = lt.Flow("test")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    rows = flow.read("rows", lt.kafka("rows", lt.json(Row))).key_by("id")
    table = rows.table("rows", deleted="gone", ttl=lt.millis(9) if ttl else None)
    keyed.join_table("join", table, pair, how="left").write("out", lt.kafka("out", lt.json(Pair)))
    return compile_flow(flow, parallelism=1, units=8, slack_ms=2)


def a_join(plan: Plan) -> TableJoinNode:
    (node,) = (node for node in Program(plan, 1)._nodes.values() if isinstance(node, TableJoinNode))
    node._followers = [(Taken(node.vertex), 0, False)]
    return node


class Taken(Node):
    """Takes what a node gives for what it delivers."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        feed.delivers.append((0, batch))


Arrival = tuple[int, int, str, bool]
"""Tick, port, key, and whether a row says that its key is gone; a record's number is its tick."""


def given_to(node: TableJoinNode, arrivals: list[Arrival]) -> None:
    for tick, port, key, gone in arrivals:
        row: Any = Row(key, tick, gone) if port == ROWS else Event(key, tick)
        node.take(Batch([OrderKey(tick, port, tick).packed()], [UNIT[key]], [row]), port, Feed())


def advanced(node: TableJoinNode, min_time: int) -> list[Pair]:
    feed = Feed()
    node.advance(min_time, feed)
    assert not feed.faults
    return [row for _, batch in feed.delivers for row in batch.rows]


def by_way_of_parts(plan: Plan, captured: dict[int, list[Any]]) -> dict[int, list[Any]]:
    step = saved_steps(plan, 1)["join"]
    found = {}
    for unit, entries in captured.items():
        head = PartHead("test", "join", step.kind, unit, 1, 2, "000003-0007")
        _, read = decode_part(encode_part(head, step.table(entries)), head.name)
        found[unit] = step.entries(read)
    return found


def expected(arrivals: list[Arrival], ttl: bool) -> list[Pair]:
    """Word for word: the newest row before a record, unless it is gone or too old."""
    found = []
    for tick, port, key, _ in sorted(arrivals):
        if port == RECORDS:
            rows = [each for each in sorted(arrivals) if each[0] < tick and each[1] == ROWS and each[2] == key]
            row = rows[-1] if rows and not rows[-1][3] and (not ttl or tick - rows[-1][0] < 5) else None
            found.append(Pair(tick, None if row is None else row[0]))
    return found


logs = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([RECORDS, ROWS]), st.sampled_from(["a", "b"]), st.booleans()),
    max_size=16,
    unique_by=lambda arrival: arrival[0],
)
times = st.lists(st.integers(0, 31), min_size=3, max_size=3).map(sorted)


@settings(deadline=None)
@given(logs, times, st.booleans(), st.data())
def test_each_record_has_its_row_whatever_is_pruned_and_saved(
    arrivals: list[Arrival], ticks: list[int], ttl: bool, data: st.DataObject
) -> None:
    """R14: pruned at one tick, captured at a later one, released up to one later still."""
    pruned_at, captured_at, released = ticks
    plan = a_plan(ttl)
    node, restored = a_join(plan), a_join(plan)
    given_to(node, data.draw(st.permutations(arrivals)))
    found = [each for tick in (pruned_at, captured_at, released) for each in advanced(node, tick)]
    node.prune(pruned_at)
    captured = node.capture(captured_at)
    assert found + advanced(node, 32) == expected(arrivals, ttl)
    restored.restore(by_way_of_parts(plan, captured), captured_at)
    given_to(restored, [each for each in arrivals if each[0] >= captured_at])
    later = [each for each in expected(arrivals, ttl) if each.number >= captured_at]
    assert advanced(restored, 32) == later


@settings(deadline=None)
@given(logs, times)
def test_what_has_changed_since_a_snapshot_holds_every_row_that_differs(
    arrivals: list[Arrival], ticks: list[int]
) -> None:
    node = a_join(a_plan(ttl=False))
    given_to(node, arrivals)
    advanced(node, 32)
    one, two, _ = ticks
    merged = {**node.capture(one), **node.capture(two, since=one)}
    assert {unit: rows for unit, rows in merged.items() if rows} == {
        unit: rows for unit, rows in node.capture(two).items() if rows
    }


@settings(deadline=None)
@given(logs)
def test_keys_that_are_gone_or_forgotten_take_no_memory(arrivals: list[Arrival]) -> None:
    node = a_join(a_plan(ttl=True))
    given_to(node, arrivals)
    advanced(node, 32)
    node.prune(32)
    node.prune(60)
    assert not node._groups


def test_a_table_that_did_not_forget_counts_from_one_snapshot_in_all_lives() -> None:
    """A life that begins from a later snapshot, which has shared what did not change, has the same ticks."""
    parts: dict[int, list[Any]] = {3: [("a", (Row("a", 1, False), None))]}
    for start, taken in ((10, 12), (12, 13)):
        node = a_join(a_plan(ttl=True))
        node.restore(parts, start)
        parts = parts | node.capture(taken, start)
        assert parts[3] == [("a", (Row("a", 1, False), 9))]


def test_a_record_waits_for_rows_before_it() -> None:
    node = a_join(a_plan(ttl=False))
    given_to(node, [(4, RECORDS, "a", False)])
    assert node.first_tick() == 4
    assert advanced(node, 4) == []
    given_to(node, [(4, ROWS, "b", False)])
    assert tick_of(OrderKey(4, 1, 4).packed()) == node.first_tick()
    assert advanced(node, 5) == [Pair(4, None)]
    assert node.first_tick() is None
