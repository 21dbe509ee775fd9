"""Orders as a shop has them: many customers, a steady pace."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict
from random import Random
from typing import Any

from orders_to_lake import Order

RATE, CUSTOMERS = 500, 40
EVERY_S = 0.02


class Feeder:
    """Produces orders at a steady rate; those of one customer go to one partition, in their order.

    Args:
        kafka: The brokers.
        topic: The topic.
        partitions: Its number of partitions.
        seconds: How long.

    Attributes:
        orders: What was sent so far, in the order of its numbers.
        rate: Orders a second.
        done: True when all were sent and acknowledged.
    """

    def __init__(self, kafka: str, topic: str, partitions: int, *, seconds: float) -> None:
        from confluent_kafka import Producer

        self.orders: list[Order] = []
        self.rate, self.done = RATE, False
        self._topic, self._partitions, self._seconds = topic, partitions, seconds
        self._producer: Any = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        chance, began = Random(7), time.monotonic()
        while not self._ends.is_set() and len(self.orders) < self._seconds * RATE:
            for _ in range(int((time.monotonic() - began) * RATE) - len(self.orders)):
                order = Order(len(self.orders), f"customer {chance.randrange(CUSTOMERS)}", chance.randrange(100, 9_000))
                place = int(order.customer.split()[1]) % self._partitions
                self._producer.produce(self._topic, json.dumps(asdict(order)).encode(), partition=place)
                self.orders.append(order)
            self._producer.poll(0)
            self._ends.wait(EVERY_S)
        self._producer.flush()
        self.done = True
