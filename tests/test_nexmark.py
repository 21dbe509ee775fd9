"""All of Nexmark's queries in one job that is killed: it delivers what the oracle says, and what DuckDB answers."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from nexmark.generator import AUCTIONS, BIDS, PERSONS, Generator, Log
from nexmark.queries import QUERIES, answers, flow_of
from tests.conftest import unique
from tests.judging import Judge, before, produce

import lowtide as lt
from lowtide.cli.snapshot import take
from lowtide.driver.job import Job
from lowtide.errors import LifeEnded
from lowtide.local.oracle import read_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import Spark

    from lowtide.conf import Conf

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

LANES = 2
PARTITIONS = {"persons": 1, "auctions": 1, "bids": 2}
RATE, CHUNK = 400, 100
DELAY_MS = 500
"""Events are late by this at most, which is less than the queries wait."""
AHEAD = timedelta(minutes=20)
"""Log time is so far ahead of the broker's clock: no idle partition is granted a floor among the events, so that which
of them are late hangs on the log, and never on how fast it is written."""
CLOSED = timedelta(seconds=30)
"""So long after the last event all windows have closed, and all auctions."""
READY_WITHIN_S, ENDED_WITHIN_S = 120.0, 120.0


class Load:
    """Events of a time to come, some of them late, a chunk after the other; `logs` keeps what was written."""

    def __init__(self, conf: Conf, topics: Mapping[str, str]) -> None:
        self.logs: list[Log] = []
        self._conf, self._topics = conf, topics
        self._generator = Generator(7, RATE, delay_ms=DELAY_MS)
        self._next = datetime.now(UTC) + AHEAD

    def write(self, seconds: float) -> None:
        """Write for so long, of log time and of real time."""
        for _ in range(round(seconds * RATE / CHUNK)):
            log = self._chunk(CHUNK)
            self.logs.append(log)
            self._produce(log)
            time.sleep(CHUNK / RATE)

    def close(self) -> int:
        """Let log time go on until all windows have closed.

        Returns:
            The log time in ms from which on nothing is due: that of the events which bring it so far.
        """
        self._next += CLOSED
        until = int(self._next.timestamp() * 1_000)
        # Some of each kind: each partition has one.
        self._produce(self._chunk(4 * (PERSONS + AUCTIONS + BIDS)))
        return until

    def _chunk(self, count: int) -> Log:
        log = self._generator.log(count, self._next)
        self._next += timedelta(seconds=count / RATE)
        return log

    def _produce(self, log: Log) -> None:
        for name, events in log.topics.items():
            stamped: list[tuple[bytes | lt.Message, int | None]] = [
                (encoded(each.record), int(each.at.timestamp() * 1_000)) for each in events
            ]
            count = PARTITIONS[name]
            produce(self._conf, self._topics[name], {part: stamped[part::count] for part in range(count)})


def is_before(until: float) -> bool:
    return time.monotonic() < until


def pid_of(worker: str, job: Job) -> int:
    return int(next(each["pid"] for each in job.status()["workers"] if each["worker"] == worker))


def encoded(record: object) -> bytes | lt.Message:
    (value,) = lt.json(type(record)).encode([record])
    assert value is not None
    return value


@pytest.mark.nightly
def test_all_queries_are_answered_over_kills(spark: Spark) -> None:
    topics = {name: spark.kafka.topic(name, count) for name, count in PARTITIONS.items()}
    topics |= {name: spark.kafka.topic(name, LANES) for name in QUERIES}
    conf = spark.conf(job__parallelism=2, job__lanes=LANES, job__max_future_ms=2 * AHEAD // timedelta(milliseconds=1))
    flow = flow_of(unique("nexmark"), QUERIES.values(), topics)
    load = Load(conf, topics)
    for victim in ("1/0", "3/1"):
        job = Job.start(flow, conf)
        try:
            job.wait_for_workers(READY_WITHIN_S)
            load.write(3.0)
            take(job.client(), flow.name, None, limit_s=ENDED_WITHIN_S)
            load.write(2.0)
            os.kill(pid_of(victim, job), signal.SIGKILL)
            load.write(1.0)
            until = time.monotonic() + ENDED_WITHIN_S
            with pytest.raises(LifeEnded):
                job.wait(partial(is_before, until))
        finally:
            job.stop()
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(READY_WITHIN_S)
        load.write(2.0)
        until_ms = load.close()
        assert Judge(flow, conf).right(until_ms=until_ms) > 0
        found = {name: before(until_ms, read_output(conf.kafka, topics[name])).values() for name in QUERIES}
    finally:
        job.stop()
    due = answers(load.logs, QUERIES.values())
    for name, query in QUERIES.items():
        results = query.read(message.value for lane in found[name] for message in lane)
        assert query.rows(results) == due[name], name
        assert due[name], name
