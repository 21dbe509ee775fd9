"""Each customer's orders, counted."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide import Flow, json, kafka, main


@dataclass(frozen=True)
class Order:
    customer: str
    number: int


@dataclass(frozen=True)
class Counted:
    customer: str
    number: int
    orders: int


@dataclass(frozen=True)
class State:
    orders: int = 0


def count(state: State, order: Order) -> tuple[State, Counted]:
    after = State(state.orders + 1)
    return after, Counted(order.customer, order.number, after.orders)


flow = Flow("orders")
(
    flow.read("orders", kafka("orders", json(Order)))
    .key_by("customer")
    .scan("count", count, State())
    .write("counted", kafka("counted", json(Counted), key="customer"))
)

if __name__ == "__main__":
    main(flow)
