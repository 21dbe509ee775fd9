"""A job on a broker with TLS, SCRAM and an authorizer, as a user who may do what `lowtide topic allow` allows (R13)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.secured_broker import USER, SecuredBroker, secured_broker
from tests.shop import Load, Shop
from tests.test_exactly_once import a_worker, after, until_delivered
from tests.test_snapshots import taken
from tests.waiting import HANGS_S, wait_until

from lowtide.cli.snapshot_place import opened
from lowtide.connectors.acls import allow
from lowtide.driver.job import Job
from lowtide.driver.preflight import needed_acls
from lowtide.errors import LifeEnded, LowtideError
from lowtide.flow.plan.compiler import compile_job
from lowtide_snapshots.commits.choice import manifest_of

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]


@pytest.fixture(name="broker", scope="module")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.mark.parametrize("version", [pytest.param("v1", marks=pytest.mark.nightly), "v2"])
def test_r13_a_job_under_tls_that_logs_in_over_the_death_of_a_worker(
    spark: Spark, broker: SecuredBroker, version: str
) -> None:
    """Sources, sink, dead letters, lasts, admin calls and the group that follows its commits, with a login's ACLs."""
    outside = Shop.open(
        f"secured-{version}", broker, spark.settings() | {"kafka.bootstrap_servers": broker.address}, letters=2
    )
    group = f"lowtide.{outside.name}.lag"
    shop = outside.but(**broker.login, kafka__transactions=version, kafka__report_lag_to=group)
    with pytest.raises(LowtideError, match=shop.sources[0]):
        Job.start(shop.flow(), shop.conf)
    allow(outside.conf.kafka, USER, needed_acls(compile_job(shop.flow(), shop.conf)))
    job = Job.start(shop.flow(), shop.conf)
    try:
        job.wait_for_workers(HANGS_S)
        with Load(outside):
            job.wait(until_delivered(job, 200))
            taken(job)
            os.kill(a_worker(job), signal.SIGKILL)
            with pytest.raises(LifeEnded):
                job.wait(after(HANGS_S))
    finally:
        job.stop()
    with shop.running() as job:
        assert outside.judge.right()
        status = job.client().status()
        assert status.protocols == {"kafka": [version]}
        assert status.connections["Kafka"] == "SASL_SSL"
        taken(job)
        wait_until(lambda: committed(broker, group, shop.sources[0]) == read_up_to(shop), HANGS_S, "the group follows")
    assert outside.judge.right()


def committed(broker: SecuredBroker, group: str, topic: str) -> dict[int, int]:
    """The offsets that a group has of a topic's two partitions."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "enable.auto.commit": False})
    try:
        asked = consumer.committed([TopicPartition(topic, number) for number in (0, 1)], timeout=HANGS_S)
        return {each.partition: each.offset for each in asked}
    finally:
        consumer.close()


def read_up_to(shop: Shop) -> dict[int, int]:
    """The offsets of the last commit."""
    with opened(shop.conf, shop.name) as (place, _):
        last = place.log.last()
        assert last is not None
        return {front.partition: front.offset for front in manifest_of(place.log, place.files, last).fronts}
