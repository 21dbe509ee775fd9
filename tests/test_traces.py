"""Traces of a job on real Kafka and Spark, as a receiver of OTLP sees them, over a worker that is killed."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from tests.shop import Shop, now_ms
from tests.waiting import HANGS_S, wait_until

from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.core.operators.order.order import SIGN_32, SIGN_64
from lowtide.errors import LifeEnded
from lowtide.worker.traces import Sampling

pytest.importorskip("opentelemetry.sdk.trace", reason="lowtide[traces] is not installed")

from otlp_receiver import Received, Receiver, whole

if TYPE_CHECKING:
    from tests.conftest import Spark

    from lowtide.driver.job import Job

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
Place = tuple[str, int]
"""A record's partition and offset."""
LEVELS, PARTITIONS, RATIO = 3, 2, 0.25
EARLY, UNDER_WAY, LATE = 400, 600, 200


def test_a_record_keeps_its_trace_over_a_killed_worker_and_one_life_delivers_it(spark: Spark) -> None:
    """Spans of two lives differ in `lowtide.life`; what is delivered is `run_locally`'s, traced or not."""
    with Receiver() as receiver:
        settings = spark.settings() | {"traces.endpoint": receiver.endpoint, "traces.ratio": RATIO}
        shop = Shop.open("traces", spark.kafka, settings)
        shop.produce(range(EARLY), now_ms() - 5_000)
        with shop.running() as job:
            assert shop.judge.right() == EARLY
            first, sampled = job.incarnation, sampled_of(shop, job, EARLY)
            assert 0 < len(sampled) < EARLY / 2
            wait_until(lambda: are_whole(receiver.spans, first, sampled), HANGS_S, "the first life's traces are whole")
            shop.produce(range(1_000, 1_000 + UNDER_WAY))
            kill_a_worker(job)
        shop.produce(range(2_000, 2_000 + LATE))
        with shop.running() as job:
            assert shop.judge.right() == EARLY + UNDER_WAY + LATE
            second, every = job.incarnation, sampled_of(shop, job, EARLY + UNDER_WAY + LATE)
            late = {trace: place for trace, place in every.items() if place[1] * PARTITIONS >= EARLY + UNDER_WAY}
            wait_until(lambda: are_whole(receiver.spans, second, late), HANGS_S, "the second life's traces are whole")
            wait_until(
                lambda: places_of(receiver.spans, second) == every, HANGS_S, "the second life has read all records"
            )
    assert sampled.items() <= places_of(receiver.spans, first).items() <= every.items()
    assert {span.trace for span in receiver.spans} == every.keys()
    lives = delivering(receiver.spans)
    assert all(lives[trace] == {first} for trace in sampled)
    assert all(lives[trace] == {second} for trace in late)
    assert all(len(found) <= 1 for found in lives.values())


def kill_a_worker(job: Job) -> None:
    """SIGKILL of one that delivers, with records under way."""
    os.kill(next(worker["pid"] for worker in job.status()["workers"] if worker["worker"] == "2/0"), signal.SIGKILL)
    with pytest.raises(LifeEnded):
        job.wait()


def sampled_of(shop: Shop, job: Job, records: int) -> dict[int, Place]:
    """The records that are to be traced, by trace, of so many in both partitions in turn."""
    with ZooKeeperAccess.of(shop.conf.zookeeper).store(shop.name) as store:
        sampling = Sampling(f"{shop.name} {store.identity(job.incarnation)}", RATIO)
    found = {}
    for partition in range(PARTITIONS):
        front = shop.judge.fronts()[f"{shop.sources[0]}-{partition}"]
        for offset in range(records // PARTITIONS):
            trace = sampling.trace_of((front + SIGN_32).to_bytes(4, "big") + (offset + SIGN_64).to_bytes(8, "big"))
            if trace is not None:
                found[trace] = (str(partition), offset)
    return found


def are_whole(spans: Iterable[Received], life: int, traces: Iterable[int]) -> bool:
    found = defaultdict(list)
    for span in list(spans):
        if span.of["lowtide.life"] == life:
            found[span.trace].append(span)
    return all(whole(found[trace], LEVELS) for trace in traces)


def places_of(spans: Iterable[Received], life: int) -> dict[int, Place]:
    """The records whose source span a life has sent, by trace."""
    return {
        span.trace: (span.of["messaging.destination.partition.id"], span.of["messaging.kafka.offset"])
        for span in list(spans)
        if span.name == "source" and span.of["lowtide.life"] == life
    }


def delivering(spans: Iterable[Received]) -> dict[int, set[int]]:
    """By trace the lives that have delivered what came of its record."""
    found: dict[int, set[int]] = {span.trace: set() for span in spans}
    for span in spans:
        if span.name == "deliver":
            found[span.trace].add(span.of["lowtide.life"])
    return found
