"""Exactly once on a real Kafka: over epochs, with a slow sink, a broker that goes, and what a start is refused for."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.shop import Load, Shop
from tests.waiting import HANGS_S

from lowtide.connectors.topics import Topics
from lowtide.driver.job import Job
from lowtide.embedded import EmbeddedServices
from lowtide.errors import AlreadyRunning, LifeEnded, LowtideError
from lowtide.local.oracle import read_output
from lowtide.sinks.kafka.lasts import topic_of
from tests.driver import below_with, view

if TYPE_CHECKING:
    from tests.conftest import Kafka, Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
EPOCH_S = 5
LOAD_PER_S = 1_000


@pytest.fixture(name="own")
def _own(kafka: Kafka, tmp_path: Path) -> Iterator[Kafka]:
    """A broker of this test's own, to be stopped."""
    with EmbeddedServices(tmp_path / "services", only=["kafka"]) as services:
        yield type(kafka)(services)


@pytest.mark.nightly
def test_r13_over_epochs_under_load_with_a_slow_sink_and_a_broker_that_is_restarted(spark: Spark, own: Kafka) -> None:
    own_settings = {"kafka.bootstrap_servers": own.address, "kafka.delivery_limit_ms": 90_000}
    shop = Shop.open("epochs", own, spark.settings() | own_settings, letters=2)
    broker = own.services.pid("kafka")
    assert broker is not None
    with shop.running() as job:
        with Load(shop, per_s=LOAD_PER_S) as load:
            job.wait(after(1.5 * EPOCH_S))
            os.kill(broker, signal.SIGSTOP)
            try:
                job.wait(after(3))
            finally:
                os.kill(broker, signal.SIGCONT)
            job.wait(after(2 * EPOCH_S))
        assert load.written > 3 * EPOCH_S * LOAD_PER_S / 2
        assert shop.judge.right()
        with Load(shop, first=1_000_000, per_s=300):
            job.wait(after(1))
            own.services.stop("kafka", grace_s=0)
            job.wait(after(2))
            own.services.start("kafka")
            job.wait(after(3))
        assert shop.judge.right()
        # All that was in one life: whatever else goes wrong with a broker ends it, and is then made good by the next.
        assert job.status()["incarnation"] == job.incarnation
        assert job.running()
    assert shop.judge.right()


def test_r13_with_transactions_of_version_2_over_the_death_of_a_worker_and_of_a_producer(spark: Spark) -> None:
    """Both in mid-run: what the dead one had open is the next life's to end, by the same ids."""
    shop = Shop.open("version-2", spark.kafka, spark.settings(), letters=2).but(kafka__transactions="v2")
    for first, whom in ((0, a_worker), (100_000, a_producer)):
        job = Job.start(shop.flow(), shop.conf)
        try:
            job.wait_for_workers(HANGS_S)
            with Load(shop, first):
                job.wait(until_delivered(job, 200))
                os.kill(whom(job), signal.SIGKILL)
                with pytest.raises(LifeEnded):
                    job.wait(after(HANGS_S))
        finally:
            job.stop()
    with shop.running() as job:
        assert shop.judge.right()
        assert job.client().status().protocols == {"kafka": ["v2"]}


def until_delivered(job: Job, records: int) -> Any:
    """For `Job.wait`: go on until the life has delivered so many."""
    return lambda: view(job)["totals"]["delivered"] < records


def a_worker(job: Job) -> int:
    return next(int(each["pid"]) for each in job.status()["workers"] if each["worker"] == "1/0")


def a_producer(_: Job) -> int:
    return below_with(os.getpid(), "io.lowtide.TransactionProcess")[0]


def after(seconds: float) -> Any:
    """For `Job.wait`: go on until then."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def test_starts_that_would_deliver_wrongly_are_refused(spark: Spark) -> None:
    shop = Shop.open("refused", spark.kafka, spark.settings())
    shop.produce(range(400))
    with shop.running():
        assert shop.judge.right() == 400
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}") as second:
            Job.start(shop.flow(), shop.conf)
        assert shop.name in str(second.value)
        # The one that was there has not even noticed.
        shop.produce(range(400, 500))
        assert shop.judge.right() == 500

    said = refusal(shop.but(job__slack_ms=7))
    assert "slack_ms" in said
    assert "2" in said
    assert "7" in said
    assert "lanes" in refusal(shop.but(job__lanes=1, job__parallelism=1))

    client: Any = AdminClient({"bootstrap.servers": spark.kafka.address})
    place = TopicPartition(shop.sources[0], 1, 100)
    client.delete_records([place])[place].result()
    said = refusal(shop)
    assert "begins at offset 100" in said
    assert "must read from 0" in said
    assert "partition 1" in said

    other = Shop.open("lost", spark.kafka, spark.settings())
    other.produce(range(100))
    with other.running():
        assert other.judge.right() == 100
    topics, lasts = Topics(other.conf.kafka), topic_of(other.name)
    topics.delete(lasts)
    assert "is gone" in refusal(other)
    topics.create(lasts, config={"cleanup.policy": "compact"})
    assert "has been replaced by another" in refusal(other)
    # Whatever was refused has delivered nothing.
    assert (committed(shop), committed(other)) == (500, 100)


def refusal(shop: Shop) -> str:
    """The error that refuses a start."""
    with pytest.raises(LowtideError) as refused:
        Job.start(shop.flow(), shop.conf).stop()
    assert refused.value.way_out
    return str(refused.value)


def committed(shop: Shop) -> int:
    return sum(map(len, read_output(shop.conf.kafka, shop.sink).values()))


def test_at_least_once_loses_nothing_and_says_it_all_again_after_a_stop(spark: Spark) -> None:
    shop = Shop.open("again", spark.kafka, spark.settings() | {"job.delivery": "at_least_once"})
    shop.produce(range(1000))
    seen = []
    for life in (1, 2):
        with shop.running() as job:
            deadline = time.monotonic() + HANGS_S
            while committed(shop) < 1000 * life and time.monotonic() < deadline:
                time.sleep(0.3)
            assert job.running()
        seen.append(read_output(shop.conf.kafka, shop.sink))
    first, both = seen
    assert sum(map(len, first.values())) == 1000
    for lane, messages in both.items():
        # In order within a life, and each life delivers the same bytes.
        assert messages == first[lane] * 2
        assert set(Counter(messages).values()) <= {2}
    assert topic_of(shop.name) not in Topics(shop.conf.kafka).names()
