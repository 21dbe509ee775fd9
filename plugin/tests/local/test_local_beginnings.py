"""Runs here and now that begin in the middle: with states, and with partitions that have orders of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

import lowtide as lt
from lowtide.errors import FlowError

TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    user: str
    shop: str
    amount: int


@dataclass(frozen=True)
class Basket:
    amount: int = 0
    until: datetime | None = None


def put(basket: Basket, order: Order) -> tuple[Basket, list[Order]]:
    return replace(basket, amount=basket.amount + order.amount), []


def due(basket: Basket) -> datetime | None:
    return basket.until


def emptied(basket: Basket, at: datetime) -> tuple[Basket, list[Order]]:
    return Basket(), [Order("clock", f"{at:%H:%M}", basket.amount)]


def add(total: int, order: Order) -> tuple[int, Order]:
    return total + order.amount, replace(order, amount=total + order.amount)


def totals(ttl: Any = None) -> lt.Flow:
    flow = lt.Flow("totals")
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user", "shop")
    orders.scan("total", add, 0, ttl=ttl).write("out", lt.kafka("out", lt.json(Order)))
    return flow


def at(minute: int, order: Order) -> lt.Stamped[Order]:
    return lt.Stamped(order, TEN + lt.minutes(minute))


def amounts(found: dict[str, list[Order]]) -> list[int]:
    return [each.amount for each in found["out"]]


def test_a_scan_goes_on_from_the_state_of_each_key() -> None:
    orders = [Order("ann", "a", 1), Order("ann", "b", 1), Order("ann", "a", 1)]
    assert amounts(totals().run_locally(orders=orders, states={"total": {("ann", "a"): 10}})) == [11, 1, 12]


def test_the_ttl_of_a_state_that_is_given_counts_from_its_keys_next_record() -> None:
    orders = [at(0, Order("ann", "a", 1)), at(30, Order("ann", "a", 1)), at(90, Order("ann", "a", 1))]
    states = {"total": {("ann", "a"): 10}}
    assert amounts(totals(lt.hours(1)).run_locally(orders=orders, states=states)) == [11, 12, 1]


def test_a_state_that_is_given_asks_for_its_timer() -> None:
    flow = lt.Flow("baskets")
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user")
    orders.flat_scan("basket", put, Basket(), timer=due, on_timer=emptied).write("out", lt.kafka("out", lt.json(Order)))
    states = {"basket": {"ann": Basket(5, TEN + lt.minutes(1)), "bob": Basket(7)}}
    log = [at(0, Order("ann", "a", 1)), at(2, Order("ann", "a", 30)), at(2, Order("bob", "a", 1))]
    assert flow.run_locally(orders=log, states=states)["out"] == [Order("clock", "10:01", 6)]
    assert flow.run_locally(states=states)["out"] == [Order("clock", "10:01", 5)]


@pytest.mark.parametrize(
    ("states", "refused"),
    [
        ({"sum": {"ann": 1}}, 'names "sum", which is not a step that takes states; those are total'),
        ({"total": {"ann": 1}}, "a state for 'ann', but its key is user, shop"),
        ({"total": {("ann", "a"): "many"}}, r"for key \('ann', 'a'\) the state str, expected int"),
    ],
)
def test_a_state_that_no_step_could_have_is_refused(states: Any, refused: str) -> None:
    with pytest.raises(FlowError, match=refused):
        totals().run_locally(orders=[], states=states)


def test_each_partition_has_an_order_of_its_own() -> None:
    one = [at(3, Order("ann", "a", 1)), at(1, Order("ann", "a", 2))]
    other = [at(2, Order("ann", "a", 4)), at(5, Order("ann", "a", 8))]
    assert amounts(totals().run_locally(orders={0: one, 1: other})) == [4, 5, 7, 15]
    assert amounts(totals().run_locally(orders={1: one, 0: other})) == [4, 5, 7, 15]
    assert amounts(totals().run_locally(orders=[*one, *other])) == [1, 3, 7, 15]
    assert amounts(totals().run_locally({"orders": {}})) == []
