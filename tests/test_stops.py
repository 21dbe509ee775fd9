"""Jobs with an end: what a live job would have given up to there, byte by byte, over a kill; and then it is over."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.conftest import unique
from tests.judging import Judge, committed, produce
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.connectors.topics import Topics
from lowtide.driver.bounds import last_offsets
from lowtide.driver.job import Job
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.oracle import read_output
from lowtide_snapshots.commits.log import ZooKeeperCommitLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conftest import Kafka, Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]

LANES = 2
COUNT = 1500
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Click:
    page: str
    number: int
    at: datetime


@dataclass(frozen=True)
class Visits:
    page: str
    window_start: datetime
    clicks: int
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Total:
    page: str
    total: int


def slowly(click: Click) -> Click:
    time.sleep(0.001)  # As long as it takes to be killed in the middle.
    return click


def add(total: int, click: Click) -> tuple[int, Total]:
    return total + click.number, Total(click.page, total + click.number)


def flow_of(name: str, source: str, sinks: Sequence[str], stop: Any = "now") -> lt.Flow:
    """Windows of which the last ones are closed by the end alone, and a running total."""
    flow = lt.Flow(name)
    clicks = flow.read("clicks", lt.kafka(source, lt.json(Click), stop=stop)).map(slowly).key_by("page")
    clock = lt.event_time("at", wait=lt.hours(2), late="drop")
    windows = clicks.window("visits", lt.tumbling(lt.minutes(5)), time=clock)
    counted = windows.aggregate(Visits, clicks=lt.agg.count(), numbers=lt.agg.collect("number"))
    counted.write("visits", lt.kafka(sinks[0], lt.json(Visits), key="page"))
    clicks.scan("total", add, 0).write("totals", lt.kafka(sinks[1], lt.json(Total), key="page"))
    return flow


def click(conf: Conf, topic: str, partition: int, numbers: range, began: datetime, *, transaction: str = "") -> None:
    stamped: list[tuple[bytes | lt.Message, int | None]] = []
    for number in numbers:
        at = began + timedelta(seconds=number)
        (value,) = lt.json(Click).encode([Click(f"page-{number % 7}", number, at)])
        assert value is not None
        stamped.append((value, int(at.timestamp() * 1000)))
    produce(conf, topic, {partition: stamped}, transaction=transaction)


def test_a_backfill_gives_the_live_jobs_bytes(spark: Spark) -> None:
    """Killed in the middle, one partition ending in a transaction's marker, one empty, and records after the stop."""
    source = spark.kafka.topic("clicks", 3)
    sinks = [spark.kafka.topic(name, LANES) for name in ("visits", "totals", "live-visits", "live-totals")]
    conf = spark.conf(job__parallelism=2, job__lanes=LANES)
    click(conf, source, 0, range(COUNT), BEGAN)
    click(conf, source, 1, range(100, COUNT, 2), BEGAN, transaction="commit")
    flow = flow_of(unique("backfill"), source, sinks[:2])
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        job.wait(lambda: not committed(conf, sinks[1]))
        assert not job.finished, "it is to be killed before"
        click(conf, source, 0, range(200), BEGAN + timedelta(days=7))
        os.kill(next(each["pid"] for each in job.status()["workers"] if each["worker"] == "1/0"), signal.SIGKILL)
        with pytest.raises(LifeEnded):
            job.wait(until(60.0))
    finally:
        job.stop()
    _finish(flow, conf)
    assert Judge(flow, conf).right() > COUNT
    done = [read_output(conf.kafka, sink) for sink in sinks[:2]]
    with ZooKeeperAccess.of(conf.zookeeper).store(flow.name) as store:
        last = ZooKeeperCommitLog(store).last()
    assert last is not None, "the end is committed"
    _finish(flow, conf)
    assert [read_output(conf.kafka, sink) for sink in sinks[:2]] == done, "another start has nothing to add"
    with pytest.raises(FlowError, match="is now to be read without stop="):
        Job.start(flow_of(flow.name, source, sinks[:2], stop=None), conf)
    live = flow_of(unique("live"), source, sinks[2:], stop=None)
    with spark.job(live, job__parallelism=1, job__lanes=LANES):
        assert Judge(live, conf).right() > COUNT
    for found, whole in zip(done, (read_output(conf.kafka, sink) for sink in sinks[2:]), strict=True):
        for lane, messages in found.items():
            assert whole[lane][: len(messages)] == messages


def test_where_a_source_ends_is_decided_once(spark: Spark) -> None:
    source, conf = spark.kafka.topic("clicks", 2), spark.conf()
    click(conf, source, 0, range(20), BEGAN)
    click(conf, source, 1, range(20), BEGAN)
    topics = Topics(conf.kafka)
    topic = topics.describe(source)
    earliest = topics.earliest([topic])

    def ends(stop: Any, firsts: dict[tuple[str, int], int] | None = None) -> tuple[int, int]:
        plan = compile_flow(flow_of("ends", source, ("visits", "totals"), stop), parallelism=1)
        found = last_offsets(plan, conf, (topic,), firsts or earliest)
        return found[source, 0], found[source, 1]

    assert ends("now") == (20, 20)
    assert ends({1: 7}) == (20, 7)
    assert ends(BEGAN + timedelta(seconds=5)) == (5, 5)
    assert ends(BEGAN + timedelta(hours=5)) == (20, 20)
    assert ends(BEGAN, {(source, 0): 3, (source, 1): 0}) == (3, 0), "it begins after it ends: there is nothing to read"
    for wrong in ({2: 0}, {0: 21}):
        with pytest.raises(FlowError, match="stop= names offset"):
            ends(wrong)
    with pytest.raises(FlowError, match="is read from 3 on"):
        ends({0: 2}, {(source, 0): 3, (source, 1): 0})


def test_what_lies_before_a_moment_is_read_though_it_is_undecided_when_the_job_begins(kafka: Kafka) -> None:
    """Such records are committed later; where the source ends is decided once."""
    source, conf = kafka.topic("clicks"), Conf.load(None, {"kafka.bootstrap_servers": kafka.address})
    click(conf, source, 0, range(5), BEGAN)
    began_ms = round(BEGAN.timestamp() * 1000)
    writer: Any = Producer({"bootstrap.servers": kafka.address, "transactional.id": source})
    writer.init_transactions(10)
    writer.begin_transaction()
    writer.produce(source, b"{}", partition=0, timestamp=began_ms + 5_000)
    writer.flush(10)
    click(conf, source, 0, range(6, 7), BEGAN)
    topics = Topics(conf.kafka)
    topic = topics.describe(source)
    firsts = topics.earliest([topic])

    def end(stop: Any) -> int:
        plan = compile_flow(flow_of("ends", source, ("visits", "totals"), stop), parallelism=1)
        return last_offsets(plan, conf, (topic,), firsts)[source, 0]

    assert topics.ends([topic]) == {(source, 0): 5}
    found = end(BEGAN + timedelta(seconds=60)), end(BEGAN + timedelta(seconds=6)), end(BEGAN + timedelta(seconds=3))
    assert end("now") == 5, "what is undecided is not there yet"
    writer.commit_transaction(10)
    assert found == (7, 6, 3)


def _finish(flow: lt.Flow, conf: Conf) -> None:
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        job.wait(until(120.0))
        assert job.finished
    finally:
        job.stop()


def until(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() < deadline
