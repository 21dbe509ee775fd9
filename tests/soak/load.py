"""Clicks at a steady rate, and a rate each second, written by a thread for as long as the block lasts."""

from __future__ import annotations

import threading
import time
from typing import Self

from confluent_kafka import Producer
from tests.shop import Shop, now_ms

from lowtide.connectors.kafka_access import librdkafka_settings

USERS = 5_003
STRIDE = 2_654_435_761
"""The user of a click: neighbours are of users far apart."""
DISORDER_MS = 4_000
"""A click is up to so long before it is written: within what visits wait for."""


class Load:
    """A thread.

    Args:
        shop: Whose sources are written to.
        per_s: Clicks a second.

    Attributes:
        written: How many clicks there are.
    """

    def __init__(self, shop: Shop, per_s: int) -> None:
        self.written = 0
        self._shop, self._per_s = shop, per_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        settings = {**librdkafka_settings(self._shop.conf.kafka), "linger.ms": 5, "enable.idempotence": True}
        producer = Producer({**settings, "delivery.timeout.ms": 60_000, "log_level": 0})
        clicks, rates = self._shop.sources
        began, rated = time.monotonic(), 0
        while not self._over.wait(0.01):
            spent = time.monotonic() - began
            at_ms = now_ms()
            for number in range(self.written, int(spent * self._per_s)):
                producer.produce(clicks, click(number, at_ms), partition=number % 2)
                self.written += 1
            if rated <= spent:
                rated += 1
                producer.produce(rates, b'{"number":%d,"factor":%d}' % (rated, 1 + rated % 97), partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0


def click(number: int, at_ms: int) -> bytes:
    """A click as a message's value."""
    user, before_ms = number * STRIDE % USERS, number * 7_919 % DISORDER_MS
    return b'{"user":"user-%d","number":%d,"at":%d}' % (user, number, at_ms - before_ms)
