"""Flows on real Spark and Kafka deliver what `run_locally` says, over epochs.

Exactly once and in order: a lane is one partition of the output, and its messages are the oracle's, byte by byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.judging import Judge

from lowtide import Flow, Raw, kafka, raw
from lowtide import json as as_json

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
LANES = 2
Unique = Callable[[str], str]
BACKLOG = 8_000
"""Messages of 60 kB, so several times what may be under way at once."""


@dataclass(frozen=True)
class Order:
    user: str
    number: int
    price: float = 0.0


@dataclass(frozen=True)
class Word:
    text: str
    number: int


def double(order: Order) -> Order:
    return Order(order.user, order.number * 2, order.price)


def is_even(order: Order) -> bool:
    return order.number % 2 == 0


def words(order: Order) -> Iterator[Word]:
    for letter in order.user:
        yield Word(letter, order.number)


def next_price(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(2, "price", pc.add(batch.column("price"), 1.0))


def text(order: Order) -> Raw:
    return Raw(order.user.encode(), f"{order.number}".encode())


def orders(count: int, offset: int = 0) -> list[dict[str, Any]]:
    return [{"user": f"user-{n % 7}", "number": n, "price": n / 4} for n in range(offset, offset + count)]


def test_steps_of_all_kinds_over_several_epochs(spark: Spark, unique: Unique) -> None:
    source, sink = spark.kafka.topic("orders", 2), spark.kafka.topic("out", LANES)
    flow = Flow(unique("steps"))
    stream = flow.read("orders", kafka(source, as_json(Order))).map(double).filter(is_even)
    stream = stream.map_batches(next_price, Order).key_by("user")
    stream.flat_map(words).write("out", kafka(sink, as_json(Word), key="text"))
    with spark.job(flow) as job:
        for round_ in range(8):
            for partition in (0, 1):
                spark.kafka.produce(source, orders(250, 1000 * round_ + 500 * partition), partition)
            spark.kafka.messages(sink, 250 * 2 * 6 * (round_ + 1))
        assert Judge(flow, spark.conf()).right()
        assert job.running()


def test_a_flow_without_key_by_keeps_the_order_of_each_source_partition(spark: Spark, unique: Unique) -> None:
    source, sink = spark.kafka.topic("orders", 2), spark.kafka.topic("out", LANES)
    flow = Flow(unique("no-key"))
    flow.read("orders", kafka(source, as_json(Order))).map(double).write("out", kafka(sink, as_json(Order)))
    with spark.job(flow):
        for partition in (0, 1):
            spark.kafka.produce(source, orders(500, 1000 * partition), partition)
        assert Judge(flow, spark.conf()).right()


def test_three_levels_two_sources_and_two_sinks(spark: Spark, unique: Unique) -> None:
    sources = [spark.kafka.topic("orders", 2), spark.kafka.topic("more-orders.v2", 2)]
    sinks = [spark.kafka.topic("out", LANES), spark.kafka.topic("words", LANES)]
    flow = Flow(unique("branches"))
    first = flow.read("orders", kafka(sources[0], as_json(Order))).key_by("user")
    first.map(double).key_by("number").write("out", kafka(sinks[0], as_json(Order), key="user"))
    second = flow.read("more", kafka(sources[1], as_json(Order)))
    second.flat_map(words).key_by("text").write("letters", kafka(sinks[1], as_json(Word), key="text"))
    with spark.job(flow, exchange__max_frame_rows=16):
        for number, topic in enumerate(sources):
            for partition in (0, 1):
                spark.kafka.produce(topic, orders(200, 10_000 * number + 1000 * partition), partition)
        assert Judge(flow, spark.conf()).right()


def test_raw_messages_with_null_keys_and_values(spark: Spark, unique: Unique) -> None:
    source, sink = spark.kafka.topic("orders", 2), spark.kafka.topic("out", LANES)
    flow = Flow(unique("raw"))
    flow.read("in", kafka(source, raw())).write("out", kafka(sink, raw()))
    with spark.job(flow):
        spark.kafka.produce(source, [b"", b"\xff\x00\n", b"{}" * 1000])
        found = spark.kafka.messages(sink, 3)
    assert [message.value() for message in found] == [b"", b"\xff\x00\n", b"{}" * 1000]
    assert [message.key() for message in found] == [None, None, None]


def test_a_slow_step_holds_kafka_back_and_memory_stays_bounded(spark: Spark, unique: Unique) -> None:
    source, sink = spark.kafka.topic("orders", 1), spark.kafka.topic("out", LANES)

    def dawdle(order: Order) -> Order:
        import time

        time.sleep(0.02)
        return order

    flow = Flow(unique("slow"))
    stream = flow.read("orders", kafka(source, as_json(Order))).key_by("user")
    stream.map(dawdle).write("out", kafka(sink, as_json(Order), key="user"))
    large = "x" * 30_000
    jvm = spark.session._jvm.java.lang.ProcessHandle.current().pid()
    # All of it lies there before: a broker that takes it in meanwhile would hold the sinks back as well.
    records = ({"user": f"{n % 5}{large}", "number": n} for n in range(BACKLOG))
    spark.kafka.produce(source, (json.dumps(record).encode() for record in records))
    before_mb = memory_mb(jvm, "VmRSS")
    # The backlog takes a worker more than a minute: a consumer that is slow to read does not see its end.
    with spark.job(flow, worker__max_queued_bytes=1 << 20) as job:
        spark.kafka.messages(sink, 500)
        status = job.status()
        # Key and value of the backlog are 480 MB, of which one worker gets three fifths; each has 75 of its own.
        peaks = {worker["worker"]: memory_mb(worker["pid"], "VmHWM") for worker in status["workers"]}
        assert max(peaks.values()) < 300, peaks
        assert memory_mb(jvm, "VmRSS") - before_mb < 200
    assert status["totals"]["records_in"] < BACKLOG


def memory_mb(pid: int, what: str) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(what)) / 1024
