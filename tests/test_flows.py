"""Flows on real Spark and Kafka deliver what `run_locally` says, over epochs.

Until a barrier orders them, records of one lane that came through different workers may interleave; so what is compared
is, per lane, the multiset of messages, and per lane and source partition their order.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lowtide import Flow, Raw, kafka, raw
from lowtide import json as as_json
from lowtide.compiler import compile_flow
from lowtide.local import Message, run_log
from lowtide.operators.meta import Position

if TYPE_CHECKING:
    from tests.conftest import Kafka, Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
LANES = 2
BACKLOG = 6_000
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


def expected(flow: Flow, kafka_: Kafka, topics: Iterable[str], sink: str) -> dict[int, list[tuple[Any, ...]]]:
    """Per lane what the oracle delivers for the same log: (front, sequence, key, value)."""
    plan = compile_flow(flow, parallelism=LANES, lanes=LANES)
    log: dict[str, list[Message]] = {}
    front = 0
    for source, topic in zip(plan.sources(), topics, strict=True):
        by_partition = defaultdict(list)
        for message in kafka_.messages(topic):
            by_partition[message.partition()].append(message)
        log[source.name] = []
        for partition in sorted(by_partition):
            log[source.name] += [
                Message(Position(front + partition, m.offset()), m.timestamp()[1], m.key(), m.value())
                for m in by_partition[partition]
            ]
        front += 2
    delivered, dead = run_log(plan, log)
    assert not dead
    lanes: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for message in delivered[sink]:
        lanes[message.lane].append((message.order.front, message.key, message.value))
    return lanes


def check(flow: Flow, spark: Spark, topics: list[str], sink_name: str, sink: str, *, one_exchange: bool = True) -> None:
    """What the sink's topic holds is what the oracle says; behind two exchanges a lane has several senders."""
    lanes = expected(flow, spark.kafka, topics, sink_name)
    count = sum(map(len, lanes.values()))
    assert count
    found: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
    for message in spark.kafka.messages(sink, count):
        found[message.partition()].append((message.key(), message.value()))
    for lane, messages in lanes.items():
        assert Counter(found[lane]) == Counter((key, value) for _, key, value in messages)
        for front in {front for front, _, _ in messages if one_exchange}:
            in_order = [(key, value) for source, key, value in messages if source == front]
            assert is_subsequence(in_order, found[lane])
    assert sum(map(len, found.values())) == count


def is_subsequence(part: list[Any], whole: list[Any]) -> bool:
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in part)


def test_steps_of_all_kinds_over_several_epochs(spark: Spark) -> None:
    source, sink = spark.kafka.topic("orders", 2), spark.kafka.topic("out", LANES)
    flow = Flow("steps")
    stream = flow.read("orders", kafka(source, as_json(Order))).map(double).filter(is_even)
    stream = stream.map_batches(next_price, Order).key_by("user")
    stream.flat_map(words).write("out", kafka(sink, as_json(Word), key="text"))
    with spark.job(flow) as job:
        for round_ in range(8):
            for partition in (0, 1):
                spark.kafka.produce(source, orders(250, 1000 * round_ + 500 * partition), partition)
            spark.kafka.messages(sink, 250 * 2 * 6 * (round_ + 1))
        check(flow, spark, [source], "out", sink)
        assert job.running()


def test_a_flow_without_key_by_keeps_the_order_of_each_source_partition(spark: Spark) -> None:
    source, sink = spark.kafka.topic("orders", 2), spark.kafka.topic("out", LANES)
    flow = Flow("no-key")
    flow.read("orders", kafka(source, as_json(Order))).map(double).write("out", kafka(sink, as_json(Order)))
    with spark.job(flow):
        for partition in (0, 1):
            spark.kafka.produce(source, orders(500, 1000 * partition), partition)
        check(flow, spark, [source], "out", sink)


def test_three_levels_two_sources_and_two_sinks(spark: Spark) -> None:
    sources = [spark.kafka.topic("orders", 2), spark.kafka.topic("more-orders.v2", 2)]
    sinks = [spark.kafka.topic("out", LANES), spark.kafka.topic("words", LANES)]
    flow = Flow("branches")
    first = flow.read("orders", kafka(sources[0], as_json(Order))).key_by("user")
    first.map(double).key_by("number").write("out", kafka(sinks[0], as_json(Order), key="user"))
    second = flow.read("more", kafka(sources[1], as_json(Order)))
    second.flat_map(words).key_by("text").write("letters", kafka(sinks[1], as_json(Word), key="text"))
    with spark.job(flow, exchange__max_frame_rows=16):
        for number, topic in enumerate(sources):
            for partition in (0, 1):
                spark.kafka.produce(topic, orders(200, 10_000 * number + 1000 * partition), partition)
        check(flow, spark, sources, "out", sinks[0], one_exchange=False)
        check(flow, spark, sources, "letters", sinks[1])


def test_raw_messages_with_null_keys_and_values(spark: Spark) -> None:
    source, sink = spark.kafka.topic("orders", 2), spark.kafka.topic("out", LANES)
    flow = Flow("raw")
    flow.read("in", kafka(source, raw())).write("out", kafka(sink, raw()))
    with spark.job(flow):
        spark.kafka.produce(source, [b"", b"\xff\x00\n", b"{}" * 1000])
        found = spark.kafka.messages(sink, 3)
    assert [message.value() for message in found] == [b"", b"\xff\x00\n", b"{}" * 1000]
    assert [message.key() for message in found] == [None, None, None]


def test_a_slow_step_holds_kafka_back_and_memory_stays_bounded(spark: Spark) -> None:
    source, sink = spark.kafka.topic("orders", 1), spark.kafka.topic("out", LANES)

    def dawdle(order: Order) -> Order:
        import time

        time.sleep(0.005)
        return order

    flow = Flow("slow")
    stream = flow.read("orders", kafka(source, as_json(Order))).key_by("user")
    stream.map(dawdle).write("out", kafka(sink, as_json(Order), key="user"))
    large = "x" * 60_000
    jvm = spark.session._jvm.java.lang.ProcessHandle.current().pid()
    with spark.job(flow, worker__max_queued_bytes=1 << 20) as job:
        before_mb = memory_mb(jvm, "VmRSS")
        records = ({"user": f"{n % 5}{large}", "number": n} for n in range(BACKLOG))
        spark.kafka.produce(source, (json.dumps(record).encode() for record in records))
        spark.kafka.messages(sink, 500, within_s=60)
        status = job.status()
        assert all(memory_mb(worker["pid"], "VmHWM") < 400 for worker in status["workers"])
        assert memory_mb(jvm, "VmRSS") - before_mb < 300
    assert status["totals"]["records_in"] < BACKLOG


def memory_mb(pid: int, what: str) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(what)) / 1024
