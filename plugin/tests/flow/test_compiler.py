"""Plans as values: levels, exchanges, names, units, lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import Flow, Raw, json, kafka, raw
from lowtide.core.operators.plain.exchange import front_unit
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.steps.steps import Broadcast, KeyBy, Relay


@dataclass(frozen=True)
class Order:
    user: str
    shop: str


ORDERS = kafka("orders", json(Order))


def same(order: Order) -> Order:
    return order


def as_raw(order: Order) -> Raw:
    return Raw(None, order.user.encode())


def laid_out(plan: Plan) -> list[tuple[int, str, int, tuple[int, ...]]]:
    return [(vertex.id, vertex.name, vertex.level, vertex.parents) for vertex in plan.vertices]


def test_key_by_starts_the_next_level() -> None:
    flow = Flow("test")
    orders = flow.read("orders", ORDERS).map(same)
    orders.key_by("user").filter(lambda order: True, name="all").key_by("shop", name="shops").write("out", ORDERS)
    plan = compile_flow(flow, units=64, parallelism=2, lanes=4)
    assert laid_out(plan) == [
        (0, "orders", 0, ()),
        (1, "same", 0, (0,)),
        (2, "same/by-user", 1, (1,)),
        (3, "all", 1, (2,)),
        (4, "shops", 2, (3,)),
        (5, "out", 2, (4,)),
    ]
    assert (plan.name, plan.levels, plan.units, plan.lanes, plan.parallelism) == ("test", 3, 64, 4, 2)
    assert plan == compile_flow(flow, units=64, parallelism=2, lanes=4)


def test_a_write_without_key_by_gets_an_exchange() -> None:
    flow = Flow("test")
    orders = flow.read("orders", ORDERS)
    orders.write("keyed", kafka("a", json(Order), key="user"))
    orders.map(as_raw).write("unkeyed", kafka("b", raw()))
    plan = compile_flow(flow, parallelism=1)
    assert laid_out(plan) == [
        (0, "orders", 0, ()),
        (1, "keyed/exchange", 1, (0,)),
        (2, "keyed", 1, (1,)),
        (3, "as_raw", 0, (0,)),
        (4, "unkeyed/exchange", 1, (3,)),
        (5, "unkeyed", 1, (4,)),
    ]
    assert plan.vertices[1].step == KeyBy(("user",))
    assert plan.vertices[4].step == KeyBy(())


def test_branches_sources_and_sinks_of_one_flow() -> None:
    flow = Flow("test")
    first, second = flow.read("first", ORDERS), flow.read("second", ORDERS)
    first.key_by("user").write("a", ORDERS)
    first.key_by("shop").write("b", kafka("b", json(Order)))
    second.key_by("shop").write("c", kafka("c", json(Order)))
    plan = compile_flow(flow, parallelism=1)
    assert [vertex.name for vertex in plan.sources()] == ["first", "second"]
    assert [vertex.name for vertex in plan.sinks()] == ["a", "b", "c"]
    assert [vertex.name for vertex in plan.exchanges()] == ["first/by-user", "first/by-shop", "second/by-shop"]
    assert [child.name for child in plan.children(0)] == ["first/by-user", "first/by-shop"]


@settings(deadline=None)
@given(st.integers(1, 300), st.data())
def test_every_hash_unit_has_one_lane_and_every_lane_one_worker(units: int, data: st.DataObject) -> None:
    lanes = data.draw(st.integers(1, units))
    parallelism = data.draw(st.integers(1, lanes))
    flow = Flow("test")
    flow.read("orders", ORDERS).write("out", ORDERS)
    plan = compile_flow(flow, units=units, lanes=lanes, parallelism=parallelism)
    lane, worker = plan.lane_of_unit(), plan.worker_of_unit()
    assert set(lane.tolist()) == set(range(lanes))
    assert set(worker.tolist()) == set(range(parallelism))
    assert (np.diff(lane) >= 0).all()
    assert len(set(zip(lane.tolist(), worker.tolist(), strict=True))) == lanes


@pytest.mark.parametrize(("units", "lanes", "parallelism"), [(128, 2, 3), (4, 8, 2), (128, 2, 0)])
def test_numbers_that_do_not_fit_are_refused(units: int, lanes: int, parallelism: int) -> None:
    flow = Flow("test")
    flow.read("orders", ORDERS).write("out", ORDERS)
    with pytest.raises(FlowError, match=f"parallelism {parallelism}, lanes {lanes} and hash units {units}"):
        compile_flow(flow, units=units, lanes=lanes, parallelism=parallelism)


@pytest.mark.parametrize("count", [2, 3, 4, 8, 16])
def test_neighbouring_fronts_are_spread_evenly(count: int) -> None:
    units = [front_unit(front, 128) for front in range(count)]
    assert all(0 <= unit < 128 for unit in units)
    lanes = Counter(unit * 2 // 128 for unit in units)
    assert abs(lanes[0] - lanes[1]) <= 2


@dataclass(frozen=True)
class Seen:
    users: dict[str, int]


def twice(order: Order) -> Iterator[Order]:
    yield from (order, order)


def count(state: int, order: Order) -> tuple[int, Order]:
    return state + 1, order


def see(state: Seen, order: Order) -> Seen:
    return Seen({**state.users, order.user: 1})


def beside(state: int, order: Order, seen: Seen) -> tuple[int, Order]:
    return state + len(seen.users), order


def once(order: Order) -> bool:
    return False


def depths(plan: Plan) -> dict[str, int]:
    return {vertex.name: vertex.depth for vertex in plan.vertices}


def everything() -> Flow:
    """A flow of every step with state, on three levels."""
    flow = Flow("everything")
    orders = flow.read("orders", ORDERS)
    seen = orders.broadcast("seen", see, Seen({}))
    keyed = orders.flat_map(twice).key_by("user")
    looped = keyed.loop("loop", lambda body: body.flat_map(twice, name="more"), once, limit_turns=3)
    shops = looped.key_by("shop")
    counted = shops.scan("count", count, 0)
    shops.scan("beside", beside, 0, broadcast=seen).merge(orders, counted, name="all").write("out", ORDERS)
    return flow


def test_relays_bring_streams_to_one_level() -> None:
    plan = compile_flow(everything(), parallelism=1)
    assert laid_out(plan)[7:] == [
        (7, "loop/by-shop", 2, (6,)),
        (8, "count", 2, (7,)),
        (9, "beside/relay-2-1", 2, (1,)),
        (10, "beside", 2, (7, 9)),
        (11, "all/relay-1-1", 1, (0,)),
        (12, "all/relay-2-1", 2, (11,)),
        (13, "all", 2, (10, 12, 8)),
        (14, "out", 2, (13,)),
    ]
    assert [plan.vertices[vertex].step for vertex in (9, 11, 12)] == [Relay()] * 3
    assert {plan.vertices[vertex].gives for vertex in (9, 11, 12)} == {Order}
    assert plan.broadcast_of(plan.vertices[10]) == plan.vertices[1]
    assert plan.broadcast_of(plan.vertices[8]) is None


def test_all_senders_of_an_exchange_are_of_one_level() -> None:
    plan = compile_flow(everything(), parallelism=1)
    for vertex in plan.vertices:
        levels = {plan.vertices[parent].level for parent in vertex.parents}
        assert levels <= {vertex.level - vertex.is_exchange}, vertex.name
    assert plan.vertices[1].is_exchange
    assert isinstance(plan.vertices[1].step, Broadcast)


def test_a_loops_tail_knows_its_head_and_comes_behind_its_body() -> None:
    plan = compile_flow(everything(), parallelism=1)
    head, body, tail = plan.vertices[4:7]
    assert [(vertex.name, vertex.level, vertex.back) for vertex in (head, body, tail)] == [
        ("loop/head", 1, None),
        ("more", 1, None),
        ("loop", 1, 4),
    ]
    assert head.parents == (3,)
    assert head.loop_mark == 0x80000004
    assert plan.children(tail.id) == (plan.vertices[7],)
    assert plan.key_of(head) == plan.key_of(tail) == ("user",)


def test_the_depth_is_the_longest_child_path() -> None:
    assert depths(compile_flow(everything(), parallelism=1)) == {
        "orders": 0,
        "seen": 2,  # a branch, a copy
        "twice": 2,  # a branch, a flat_map
        "twice/by-user": 2,
        "loop/head": 7,  # two turns of mark and flat_map, and a mark
        "more": 8,
        "loop": 8,
        "loop/by-shop": 8,
        "count": 9,  # a branch
        "beside/relay-2-1": 2,
        "beside": 9,
        "all/relay-1-1": 1,
        "all/relay-2-1": 1,
        "all": 9,
        "out": 9,
    }


def test_paths_have_a_limit() -> None:
    flow = Flow("test")
    keyed = flow.read("orders", ORDERS).key_by("user")
    keyed.loop("loop", lambda body: body.flat_map(twice), once, limit_turns=129).write("out", ORDERS)
    with pytest.raises(FlowError, match='"loop": a record\'s child path can have 258 elements, the limit is 256'):
        compile_flow(flow, parallelism=1)


def test_streams_of_one_level_need_no_relay() -> None:
    flow = Flow("test")
    orders = flow.read("orders", ORDERS)
    orders.merge(flow.read("more", ORDERS), name="both").write("out", ORDERS)
    assert laid_out(compile_flow(flow, parallelism=1)) == [
        (0, "orders", 0, ()),
        (1, "more", 0, ()),
        (2, "both", 0, (0, 1)),
        (3, "out/exchange", 1, (2,)),
        (4, "out", 1, (3,)),
    ]


def test_windows_and_states_have_their_types_in_the_plan() -> None:
    flow = Flow("test")
    keyed = flow.read("orders", ORDERS).key_by("user")
    keyed.last(2).map(lambda orders: orders[-1], name="newest", returns=Order).write("out", ORDERS)
    plan = compile_flow(flow, parallelism=1)
    last, newest = plan.vertices[2:4]
    assert (last.name, last.takes, last.gives) == ("orders/by-user/last", Order, tuple[Order, ...])
    assert newest.takes == tuple[Order, ...]


def test_every_level_is_fed_by_the_one_before_and_sinks_by_what_may_end_the_life() -> None:
    def plan(levels: int, letters: bool, batches: bool = False, states: bool = False) -> Plan:
        flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
        orders = flow.read("orders", ORDERS)
        for number in range(1, levels):
            keyed = orders.key_by("user", name=f"by-{number}")
            orders = (
                keyed.scan(f"scan-{number}", count, 0)
                if states
                else keyed.last(1).map(lambda found: found[0], name=f"newest-{number}", returns=Order)
            )
        if batches:
            orders = orders.map_batches(same, Order, name="batches")
        orders.write("out", ORDERS)
        return compile_flow(flow, parallelism=1)

    def found(plan: Plan) -> tuple[list[int], dict[int, list[int]]]:
        segments = segments_of(plan)
        return list(segments.outlet_of.values()), dict(segments.inbound)

    assert found(plan(3, letters=True)) == ([], {1: [], 2: [1]})
    assert found(plan(1, letters=True)) == ([], {1: []}), "fronts feed it"
    assert found(plan(3, letters=False)) == ([3], {1: [], 2: [1], 3: [2]})
    assert found(plan(1, letters=False)) == ([2], {1: [], 2: [1]})
    assert found(plan(2, letters=True, batches=True)) == ([2], {1: [], 2: [1]}), "map_batches has no dead letters"
    assert found(plan(2, letters=True, states=True)) == ([2], {1: [], 2: [1]}), "nor a state that cannot be saved"


def test_which_vertices_need_min_time() -> None:
    plan = compile_flow(everything(), parallelism=1)
    assert [vertex.name for vertex in plan.needs_tracking()] == [
        "seen",
        "loop/head",
        "count",
        "beside/relay-2-1",
        "beside",
        "all/relay-1-1",
        "all/relay-2-1",
    ]
    flow = Flow("test")
    orders = flow.read("orders", ORDERS).map(same)
    orders.merge(flow.read("more", ORDERS), name="both").write("out", ORDERS)
    assert compile_flow(flow, parallelism=1).needs_tracking() == ()


def test_slack_and_grouping_stand_in_the_plan() -> None:
    flow = Flow("test")
    flow.read("orders", ORDERS).write("out", ORDERS)
    plan = compile_flow(flow, parallelism=1)
    assert (plan.slack_ms, plan.grouping) == (2, "optimistic")
    plan = compile_flow(flow, parallelism=1, slack_ms=7, grouping="ordered")
    assert (plan.slack_ms, plan.grouping) == (7, "ordered")
    with pytest.raises(FlowError, match="a slack of 0 ms is too short"):
        compile_flow(flow, parallelism=1, slack_ms=0)
    with pytest.raises(FlowError, match="unknown grouping 'eager'"):
        compile_flow(flow, parallelism=1, grouping="eager")  # type: ignore[arg-type]


def test_a_pickled_plan_with_state_is_the_same_plan() -> None:
    plan = compile_flow(everything(), parallelism=2)
    loaded = load_plan(dump_plan(plan))
    assert explain(loaded) == explain(plan)
    steps: list[Any] = [loaded.vertices[vertex].step for vertex in (1, 8, 10)]
    assert [step.initial for step in steps] == [Seen({}), 0, 0]
    assert steps[2].function(1, Order("a", "b"), Seen({"a": 1})) == (2, Order("a", "b"))


def test_the_explanation_of_steps_with_state() -> None:
    flow = everything()
    keyed = flow.read("others", ORDERS).key_by("user")
    keyed.last(2).map(lambda orders: orders[-1], name="newest", returns=Order).write(
        "newest", kafka("newest", json(Order))
    )
    lines = explain(compile_flow(flow, parallelism=1)).splitlines()
    assert lines[0].endswith("1 lane per sink, ticks of 2 ms, optimistic grouping")
    explained = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.startswith("  ")}
    assert explained == explained | {
        "seen": "exchange to all hash units: Order of orders into the state Seen",
        "loop/head": "loop: Order of twice/by-user",
        "loop": "loop: Order of more, back to loop/head for at most 3 turns",
        "count": "scan: Order of loop/by-shop -> Order, with the state int",
        "beside/relay-2-1": "exchange to the next level: Order of seen",
        "beside": "scan: Order of loop/by-shop beside beside/relay-2-1 -> Order, with the state int",
        "all": "merge: Order of beside, all/relay-2-1, count",
        "others/by-user/last": "last 2: Order of others/by-user -> tuple[Order, ...]",
    }


def test_the_explanation_of_a_plan() -> None:
    flow = Flow("shopping", dead_letters=kafka("dead", raw()))
    orders = flow.read("orders", ORDERS)
    orders.map(same).key_by("user").write("out", kafka("out", json(Order), key="user"))
    orders.map(as_raw).write("copies", kafka("copies", raw()))
    assert explain(compile_flow(flow, parallelism=2, lanes=4, early_keys=True)) == EXPLANATION


EXPLANATION = """\
flow shopping: 2 levels, 128 hash units, 4 lanes per sink

level 0: one worker per source partition
  orders           read kafka topic "orders" as JSON -> Order
  same             map: Order of orders -> Order
  as_raw           map: Order of orders -> Raw

level 1: 2 workers
  same/by-user     exchange by user: Order of same
  out              write: Order of same/by-user -> kafka topic "out" as JSON, key "user"
  copies/exchange  exchange by source partition: Raw of as_raw
  copies           write: Raw of copies/exchange -> kafka topic "copies" as raw bytes

sink "out" waits for source "orders"
  lanes wait for their own worker alone
sink "copies" waits for source "orders"
  lanes wait for their own worker alone

records that fail: they go to kafka topic "dead" as raw bytes"""
