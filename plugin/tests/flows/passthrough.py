"""The smallest flow: what comes in goes out, by user."""

from dataclasses import dataclass

import lowtide as lt
from lowtide import Flow, json, kafka


@dataclass(frozen=True)
class Order:
    user: str
    at: int
    amount: float


flow = Flow("passthrough")
flow.read("orders", kafka("orders", json(Order))).key_by("user").write("out", kafka("out", json(Order), key="user"))

if __name__ == "__main__":
    lt.main(flow)
