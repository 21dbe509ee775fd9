"""Delivery when no broker answers: nothing waits but closing, and limits hold."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from hanging import HANGS_S

from lowtide import Flow, Raw, kafka, raw
from lowtide.connectors.sender import Sender
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey, delivered_ms
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.errors import FrameTooLarge, LifeEnded, ServiceUnavailable
from lowtide.flow.plan.compiler import compile_flow
from lowtide.sinks.contract import Delivery, LaneName, Mark, Packet
from lowtide.sinks.courier import LARGE_RECORDS, Courier
from lowtide.sinks.kafka.claimant import Claimant
from lowtide.sinks.kafka.delivery import AtLeastOnce, ExactlyOnce
from lowtide.sinks.kafka.transactions import Transactions
from lowtide.sinks.kafka.versions import VersionTwo

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
Make = Callable[..., Delivery]


KAFKA_MAY_TAKE_S = 60
"""So long, and no tenth of it, takes who waits for a broker."""


def exactly_once(settings: dict[str, Any] = NOBODY, **limits: Any) -> Delivery:
    given: dict[str, Any] = {"delivery_limit_ms": KAFKA_MAY_TAKE_S * 1000} | limits
    return ExactlyOnce(settings, Claimant("id", "lasts", 1, check=lambda: None), **given)


def exactly_once_by_version_two(settings: dict[str, Any] = NOBODY, **limits: int) -> Delivery:
    wanted = VersionTwo({"bootstrap.servers": str(NOBODY["bootstrap.servers"])}, required=True)
    return exactly_once(settings, version_two=wanted, **limits)


def at_least_once(settings: dict[str, Any] = NOBODY, **limits: int) -> Delivery:
    return AtLeastOnce(settings, **({"delivery_limit_ms": KAFKA_MAY_TAKE_S * 1000} | limits))


def packet(count: int = 1, size: int = 10) -> Packet:
    return Packet(1, 2, [("out", 0, None, bytes(size), 1, None)] * count, Mark(LaneName(1, "out", 2), b""))


each_way = pytest.mark.parametrize("make", [exactly_once, at_least_once, exactly_once_by_version_two])


def hear(delivery: Delivery) -> None:
    """Wait until there is something to be heard, and raise it if it is an error."""
    assert select.select([delivery], [], [], HANGS_S)[0]
    delivery.durable()


@each_way
def test_making_and_putting_wait_for_nobody(make: Make) -> None:
    delivery = make()
    for _ in range(100):
        delivery.put(packet(1_000))
    assert delivery.queued == 100_000
    assert not select.select([delivery], [], [], 0)[0]
    assert delivery.durable() == []
    assert delivery.gauges().items() >= {"transactions": 0, "records": 0, "commit": {}}.items()
    delivery.close(0)


@each_way
@pytest.mark.parametrize("room", [10, 100_000], ids=["waiting for room", "all in the queue"])
def test_closing_takes_no_longer_than_it_may(make: Make, room: int) -> None:
    delivery = make(NOBODY | {"queue.buffering.max.messages": room})
    delivery.put(packet(100))
    begun = time.monotonic()
    assert delivery.close(0.4) == 100
    assert 0.3 < time.monotonic() - begun < KAFKA_MAY_TAKE_S / 2
    delivery.close(HANGS_S)


@each_way
def test_with_nothing_to_deliver_closing_waits_for_no_broker(make: Make) -> None:
    delivery = make()
    begun = time.monotonic()
    assert delivery.close(KAFKA_MAY_TAKE_S) == 0
    assert time.monotonic() - begun < KAFKA_MAY_TAKE_S / 2


@each_way
def test_kafka_may_take_so_long_and_no_longer(make: Make) -> None:
    delivery = make(delivery_limit_ms=1_000)
    delivery.put(packet())
    begun = time.monotonic()
    with pytest.raises(ServiceUnavailable, match=r"within 1000 ms: ") as failed:
        hear(delivery)
    assert time.monotonic() - begun > 0.9
    assert "127.0.0.1:1" in str(failed.value)
    assert "delivery_limit_ms" in failed.value.way_out
    assert delivery.queued == 1
    with pytest.raises(ServiceUnavailable):
        delivery.durable()
    assert delivery.close(1) == 1


def test_a_commit_that_failed_for_an_unknown_reason_may_have_met_another_life() -> None:
    # What Kafka 4.2 answers to a commit that comes while it is fencing the id that it was asked under.
    limits = {"delivery_limit_ms": 100, "max_record_bytes": 1_000}
    way = Transactions(NOBODY, Claimant("id", "lasts", 1, check=lambda: None), **limits)
    with pytest.raises(ServiceUnavailable):
        way.open()
    ended = way._ended(KafkaError(KafkaError.UNKNOWN))
    assert isinstance(ended, LifeEnded)
    assert "nothing if another life is running; else start the job again" in ended.way_out


def test_a_record_that_is_too_large_is_said_with_both_sizes() -> None:
    delivery = at_least_once(max_record_bytes=2_000_000)
    delivery.put(packet(1, 3_000_000))
    with pytest.raises(FrameTooLarge, match=r'a record of 3000000 bytes for topic "out" .* 2000000 bytes') as refused:
        hear(delivery)
    assert "exchange.max_frame_bytes" in str(refused.value)
    delivery.close(1)


def test_a_record_as_large_as_a_frame_may_be_is_taken() -> None:
    delivery = at_least_once(max_record_bytes=96 << 20)
    delivery.put(packet(1, 96 << 20))
    assert not select.select([delivery], [], [], 0.5)[0]
    delivery.close(0.1)


class Counted:
    """A way on which all is durable at once; keeps what went together."""

    end_by = 0.0

    def __init__(self) -> None:
        self.deliveries: list[int] = []

    def open(self) -> None:
        pass

    def deliver(self, packets: Sequence[Packet]) -> None:
        self.deliveries.append(len(packets))

    def close(self) -> None:
        pass


def delivered(courier: Courier, count: int) -> None:
    """Wait until so many packets have become durable."""
    while count > 0:
        assert select.select([courier], [], [], HANGS_S)[0]
        count -= len(courier.durable())


def test_packets_that_are_put_together_go_together_and_wake_once() -> None:
    way = Counted()
    courier = Courier(way, "test")
    courier.put(packet(), packet(), packet())
    assert select.select([courier], [], [], HANGS_S)[0]
    assert len(courier.durable()) == 3
    assert (way.deliveries, courier.gauges()["transactions"]) == ([3], 1)
    assert courier.close(HANGS_S) == 0


def test_with_a_pace_little_waits_for_more() -> None:
    way = Counted()
    courier = Courier(way, "test", pace_ms=3_000)
    courier.put(packet())
    delivered(courier, 1)
    for _ in range(3):
        courier.put(packet())
    delivered(courier, 3)
    assert way.deliveries == [1, 3]
    assert courier.close(HANGS_S) == 0


def test_with_a_pace_much_waits_for_nothing() -> None:
    courier = Courier(Counted(), "test", pace_ms=int(10 * HANGS_S * 1000))
    for count in (1, LARGE_RECORDS):
        courier.put(packet(count=count))
        delivered(courier, 1)
    assert courier.close(HANGS_S) == 0


class Slow(Counted):
    """A way that waits for leave for each delivery, and keeps of which sinks it was."""

    def __init__(self) -> None:
        super().__init__()
        self.leave = threading.Semaphore(0)
        self.sinks: list[list[int]] = []

    def deliver(self, packets: Sequence[Packet]) -> None:
        self.sinks.append([packet.sink for packet in packets])
        assert self.leave.acquire(timeout=HANGS_S)
        super().deliver(packets)


def test_a_sink_with_little_waits_for_one_full_delivery_of_another_and_not_for_all() -> None:
    way = Slow()
    courier = Courier(way, "test", full_records=20)
    courier.put(*[replace(packet(count=10), sink=1, lane=lane) for lane in range(7)])
    while not way.sinks:
        time.sleep(0.01)
    courier.put(replace(packet(), sink=2), replace(packet(), sink=2, lane=1))
    for _ in range(4):
        way.leave.release()
    found: list[tuple[int, int]] = []
    while len(found) < 9:
        assert select.select([courier], [], [], HANGS_S)[0]
        found += courier.durable()
    assert way.sinks == [[1, 1], [1, 2, 1, 2], [1, 1], [1]]
    assert [lane for sink, lane in found if sink == 1] == list(range(7)), "in the order they were put"
    courier.put(*[replace(packet(count=10), sink=1, lane=lane) for lane in range(4)])
    for _ in range(2):
        way.leave.release()
    assert courier.close(HANGS_S) == 0, "what was put before the end is delivered"
    assert way.sinks[4:] == [[1, 1], [1, 1]]


def test_what_leads_is_in_the_next_delivery_however_much_there_is() -> None:
    """R23: what was put after the answers of a call may rest on them."""
    way = Slow()
    courier = Courier(way, "test", full_records=20)
    courier.put(packet())
    while not way.sinks:
        time.sleep(0.01)
    answers = [replace(packet(count=10), sink=1, lane=lane, leads=True) for lane in range(3)]
    for each in answers:
        courier.put(each, replace(packet(count=10), sink=2, lane=each.lane))
    for _ in range(4):
        way.leave.release()
    assert courier.close(HANGS_S) == 0
    assert way.sinks == [[packet().sink], [1, 1, 1], [2, 2], [2]]


def test_kafka_keeps_the_timestamp_of_the_first_tick() -> None:
    """librdkafka takes the timestamp 0 for now, and bytes would differ from life to life; its own broker says so."""
    producing = Sender(NOBODY | {"test.mock.num.brokers": 1}, int(HANGS_S * 1000), 1_000)
    brokers = producing.producer.list_topics("out", timeout=HANGS_S).brokers.values()
    flow = Flow("test")
    flow.read("in", kafka("in", raw())).write("out", kafka("out", raw()))
    (sink,) = compile_flow(flow, parallelism=1).sinks()
    encoder = SinkEncoder(sink, slack_ms=2)
    pieces = [Piece(tick, [OrderKey(tick, 0, tick).packed()], [Raw(None, b"x")]) for tick in (0, 1, 5)]
    producing.produce(encoder.encode(0, pieces), lambda: None)
    assert producing.producer.flush(HANGS_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": ",".join(f"{each.host}:{each.port}" for each in brokers), "group.id": "t", "log_level": 0}
    )
    consumer.assign([TopicPartition("out", 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + HANGS_S
    while len(found) < len(pieces) and time.monotonic() < deadline:
        found += [message for message in consumer.consume(len(pieces), 0.1) if message.error() is None]
    consumer.close()
    assert [message.timestamp()[1] for message in found] == [delivered_ms(tick, 2) for tick in (0, 1, 5)] == [1, 2, 10]
