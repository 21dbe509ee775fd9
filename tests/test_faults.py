"""Bad records, functions and surroundings of a job: each ends in one message that says what, where, what to do."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lowtide import Flow, kafka, raw
from lowtide import json as as_json
from lowtide.driver.job import Job
from lowtide.errors import FlowError, LifeEnded, ServiceUnavailable, TooFewSlots, TopicUnknown
from lowtide.flow.formats.endpoints import Kafka as Topic
from lowtide.flow.schema.raw_record import Raw

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass(frozen=True)
class Order:
    user: str
    number: int


def refuse_negative(order: Order) -> Order:
    if order.number < 0:
        raise ValueError(f"{order.user} owes us")
    return order


def swap(order: Order) -> Order:
    return Order(order.number, order.user) if order.number == 3 else order  # type: ignore[arg-type]


def forget(order: Order) -> Order:
    return None if order.number == 3 else order  # type: ignore[return-value]


def inflate(order: Order) -> Order:
    return Order(order.user * 100_000, order.number)


def end_of(job: Job) -> str:
    """The cause of the life's end."""
    with pytest.raises(LifeEnded) as caught:
        job.wait()
    return str(caught.value)


@pytest.fixture
def topics(spark: Spark) -> tuple[str, str, str]:
    return spark.kafka.topic("orders", 2), spark.kafka.topic("out", 2), spark.kafka.topic("letters")


def flow_of(
    topics: tuple[str, str, str], step: Callable[[Order], Order], *, keyed_first: bool, letters: bool = False
) -> Flow:
    source, sink, dead = topics
    sink_for_letters: Topic[Raw] | None = kafka(dead, raw()) if letters else None
    flow = Flow(f"faults-{uuid.uuid4().hex[:8]}", dead_letters=sink_for_letters)
    stream = flow.read("orders", kafka(source, as_json(Order)))
    stream = stream.key_by("user").map(step) if keyed_first else stream.map(step).key_by("user")
    stream.write("out", kafka(sink, as_json(Order), key="user"))
    return flow


@pytest.mark.parametrize("keyed_first", [False, True], ids=["level 0", "level 1"])
def test_a_function_that_raises_ends_the_job_with_traceback_and_position(
    spark: Spark, topics: tuple[str, str, str], keyed_first: bool
) -> None:
    with spark.job(flow_of(topics, refuse_negative, keyed_first=keyed_first)) as job:
        spark.kafka.produce(topics[0], [{"user": "ann", "number": n} for n in (1, 2, -3)], partition=1)
        said = end_of(job)
    assert 'step "refuse_negative": raised ValueError: ann owes us' in said
    assert f"record at {topics[0]}-1, offset 2" in said
    assert "Order(user='ann', number=-3); order key: tick " in said
    assert ("; key: user = 'ann'" in said) == keyed_first
    assert "Traceback" in said
    assert "in refuse_negative" in said
    assert "what to do" in said
    assert "java" not in said.lower()


@pytest.mark.parametrize(
    ("step", "expected"),
    [(forget, "returned None, expected Order"), (swap, "expected str, found int 3")],
    ids=["another type", "a wrong field"],
)
def test_a_wrong_return_type_is_named_with_its_record(
    spark: Spark, topics: tuple[str, str, str], step: Callable[[Order], Order], expected: str
) -> None:
    with spark.job(flow_of(topics, step, keyed_first=False)) as job:
        spark.kafka.produce(topics[0], [{"user": "ann", "number": n} for n in range(5)])
        said = end_of(job)
    assert expected in said
    assert f"{topics[0]}-0, offset 3" in said


def test_an_unparsable_record_ends_the_job(spark: Spark, topics: tuple[str, str, str]) -> None:
    with spark.job(flow_of(topics, refuse_negative, keyed_first=True)) as job:
        spark.kafka.produce(topics[0], [{"user": "ann", "number": 1}, b'{"user": "ann", "number": "two"}'])
        said = end_of(job)
    assert 'source "orders"' in said
    assert "Expected `int`, got `str` - at `$.number`" in said
    assert f"{topics[0]}-0, offset 1" in said


def test_bad_records_go_to_the_dead_letters_and_the_rest_goes_on(spark: Spark, topics: tuple[str, str, str]) -> None:
    from confluent_kafka import Producer

    with spark.job(flow_of(topics, refuse_negative, keyed_first=False, letters=True)) as job:
        producer = Producer({"bootstrap.servers": spark.kafka.address})
        producer.produce(topics[0], b"{broken", key=b"k", partition=1, headers=[("trace", b"\x00\xff")])
        producer.flush(10)
        good_and_bad = [{"user": "ann", "number": n} for n in (1, -2, 3)]
        spark.kafka.produce(topics[0], good_and_bad, partition=1)
        letters = spark.kafka.messages(topics[2], 2)
        assert spark.kafka.records(topics[1], 2) == [good_and_bad[0], good_and_bad[2]]
        assert job.running()
    unparsable, raised = letters
    assert (unparsable.key(), unparsable.value()) == (b"k", b"{broken")
    headers = dict(unparsable.headers())
    assert headers["trace"] == b"\x00\xff"
    assert headers["lowtide.vertex"] == b"orders"
    assert headers["lowtide.partition"] == f"{topics[0]}-1".encode()
    assert headers["lowtide.offset"] == b"0"
    assert raised.value() == b'{"user": "ann", "number": -2}'
    assert dict(raised.headers())["lowtide.error"] == b"raised ValueError: ann owes us"


def test_a_record_larger_than_a_frame_is_named(spark: Spark, topics: tuple[str, str, str]) -> None:
    flow = flow_of(topics, refuse_negative, keyed_first=False)
    with spark.job(flow, exchange__max_frame_bytes=2048) as job:
        spark.kafka.produce(topics[0], [{"user": "ann", "number": 1}, {"user": "x" * 3000, "number": 2}])
        said = end_of(job)
    assert "the limit of a frame is 2048" in said
    assert f"{topics[0]}-0, offset 1" in said
    assert "exchange.max_frame_bytes" in said


def test_a_record_that_a_function_makes_larger_than_a_frame_is_named(
    spark: Spark, topics: tuple[str, str, str]
) -> None:
    with spark.job(flow_of(topics, inflate, keyed_first=False), exchange__max_frame_bytes=100_000) as job:
        spark.kafka.produce(topics[0], [{"user": "ann", "number": 1}])
        said = end_of(job)
    assert "the limit of a frame is 100000" in said
    assert f"{topics[0]}-0, offset 0" in said


def test_a_worker_that_is_killed_ends_the_job(spark: Spark, topics: tuple[str, str, str]) -> None:
    with spark.job(flow_of(topics, refuse_negative, keyed_first=True)) as job:
        spark.kafka.produce(topics[0], [{"user": "ann", "number": 1}])
        spark.kafka.messages(topics[1], 1)
        pid = next(w["pid"] for w in job.status()["workers"] if w["worker"] == "1/0")
        os.kill(pid, signal.SIGKILL)
        said = end_of(job)
    assert f"worker 1/0 (pid {pid} on executor driver) died" in said
    assert "start the job again" in said


def test_a_job_runs_in_the_session_of_one_that_failed(spark: Spark, topics: tuple[str, str, str]) -> None:
    flow = flow_of(topics, refuse_negative, keyed_first=True)
    with spark.job(flow) as job:
        spark.kafka.produce(topics[0], [{"user": "ann", "number": -1}])
        end_of(job)
    other = (spark.kafka.topic("orders", 2), *topics[1:])
    with spark.job(flow_of(other, refuse_negative, keyed_first=True)):
        spark.kafka.produce(other[0], [{"user": "ann", "number": 1}])
        assert spark.kafka.records(topics[1], 1) == [{"user": "ann", "number": 1}]


# -- what is refused before anything starts ------------------------------------------------------------------------


def test_an_unknown_source_topic_is_refused(spark: Spark, topics: tuple[str, str, str]) -> None:
    flow = flow_of(("no-such-topic", *topics[1:]), refuse_negative, keyed_first=True)
    with pytest.raises(TopicUnknown, match=r'no topic "no-such-topic"') as caught:
        Job.start(flow, spark.conf())
    assert "lowtide topic create no-such-topic" in str(caught.value)


def test_an_unknown_sink_topic_is_refused(spark: Spark, topics: tuple[str, str, str]) -> None:
    flow = flow_of((topics[0], "no-such-sink", topics[2]), refuse_negative, keyed_first=True)
    with pytest.raises(TopicUnknown, match=r'no topic "no-such-sink"'):
        Job.start(flow, spark.conf())


def test_a_compacted_source_is_refused(spark: Spark, topics: tuple[str, str, str]) -> None:
    compacted = spark.kafka.topic("compacted", cleanup_policy="compact")
    with pytest.raises(FlowError, match="compacted"):
        Job.start(flow_of((compacted, *topics[1:]), refuse_negative, keyed_first=True), spark.conf())


def test_a_flow_that_reads_its_own_output_is_refused(spark: Spark, topics: tuple[str, str, str]) -> None:
    with pytest.raises(FlowError, match="reads and writes"):
        Job.start(flow_of((topics[0], topics[0], topics[2]), refuse_negative, keyed_first=True), spark.conf())


def test_too_few_slots_are_refused_with_both_figures(spark: Spark, topics: tuple[str, str, str]) -> None:
    flow = flow_of((topics[0], spark.kafka.topic("out", 11), topics[2]), refuse_negative, keyed_first=True)
    with pytest.raises(TooFewSlots, match=r"needs 13 slots at once, Spark has 12") as caught:
        Job.start(flow, spark.conf(job__parallelism=11))
    assert "2 for the source's partitions and 1 x 11 for the later levels" in str(caught.value)
    assert "local[13]" in str(caught.value)


def test_a_broker_that_is_down_is_named(spark: Spark, topics: tuple[str, str, str]) -> None:
    flow = flow_of(topics, refuse_negative, keyed_first=True)
    with pytest.raises(ServiceUnavailable, match=r"no Kafka broker answers") as caught:
        Job.start(flow, spark.conf(kafka__bootstrap_servers="127.0.0.1:9", kafka__reach_limit_ms=1000))
    assert "127.0.0.1:9" in str(caught.value)
    assert "lowtide up" in str(caught.value)
