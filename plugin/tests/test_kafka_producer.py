"""Delivery when no broker answers: limits hold, and a record that is too large is said to be."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lowtide.connectors.kafka_producer import KafkaDelivery, Outgoing
from lowtide.errors import FrameTooLarge

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def records(count: int, size: int = 10) -> Iterator[Outgoing]:
    return iter([("out", 0, None, bytes(size), 0, None)] * count)


@pytest.mark.parametrize("queue", [10, 100_000], ids=["waiting for room", "all in the queue"])
def test_closing_takes_no_longer_than_it_may(queue: int) -> None:
    delivery = KafkaDelivery(NOBODY | {"queue.buffering.max.messages": queue}, 60_000)
    delivery.send(records(100))
    begun = time.monotonic()
    assert delivery.close(0.45) == 100
    assert 0.4 < time.monotonic() - begun < 0.6


def test_a_record_as_large_as_a_frame_may_be_is_taken() -> None:
    delivery = KafkaDelivery(NOBODY, 60_000, max_record_bytes=96 << 20)
    delivery.send(records(1, 96 << 20))
    assert not delivery.full()


def test_a_record_that_is_too_large_is_said_with_both_sizes() -> None:
    delivery = KafkaDelivery(NOBODY, 60_000, max_record_bytes=2_000_000)
    with pytest.raises(FrameTooLarge, match=r'a record of 3000000 bytes for topic "out" .* 2000000 bytes') as refused:
        delivery.send(records(1, 3_000_000))
    assert "exchange.max_frame_bytes" in str(refused.value)
