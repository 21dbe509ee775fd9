"""Plans as values: levels, exchanges, names, units, lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import Flow, Raw, json, kafka, raw
from lowtide.compiler import compile_flow
from lowtide.errors import FlowError
from lowtide.explain import explain
from lowtide.operators.exchange import front_units
from lowtide.plan import Plan
from lowtide.steps import KeyBy


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
    first.key_by("shop").write("b", ORDERS)
    second.key_by("shop").write("c", ORDERS)
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
    units = front_units(np.arange(count, dtype=np.int32), 128)
    assert ((units >= 0) & (units < 128)).all()
    lanes = np.bincount(units * 2 // 128, minlength=2)
    assert abs(int(lanes[0]) - int(lanes[1])) <= 2


def test_the_explanation_of_a_plan() -> None:
    flow = Flow("shopping", dead_letters=kafka("dead", raw()))
    orders = flow.read("orders", ORDERS)
    orders.map(same).key_by("user").write("out", kafka("out", json(Order), key="user"))
    orders.map(as_raw).write("copies", kafka("copies", raw()))
    assert explain(compile_flow(flow, parallelism=2, lanes=4)) == EXPLANATION


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

records that fail: they go to kafka topic "dead" as raw bytes"""
