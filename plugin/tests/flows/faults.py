"""A flow with every kind of fault that `lowtide check` finds."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from lowtide import Flow, json, kafka


@dataclass(frozen=True)
class Order:
    user: str
    at: int


@dataclass(frozen=True)
class Total:
    user: str
    sums: dict[str, float]


def total(order: Order) -> Total:
    return Total(order.user, {})


def spent(order: Order) -> float:
    return 1.0


flow = Flow("faults")
orders = flow.read("orders", kafka("orders", json(Order)))
orders.map(lambda order: order, returns=Order).key_by("user").write("unnamed", kafka("out", json(Order)))
again = orders.map(total).map(total, name="again")  # type: ignore[arg-type]
again.write("totals", kafka("totals", json(Total), key="sums"))
orders.map(spent)
orders.key_by("usr").write("orders", kafka("out", json(Total)))  # type: ignore[arg-type]

held = Flow("held")
lock = threading.Lock()


def locked(order: Order) -> Order:
    with lock:
        return order


held.read("orders", kafka("orders", json(Order))).map(locked).write("out", kafka("out", json(Order)))
