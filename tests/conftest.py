"""What all end-to-end tests share: a real Kafka, a real ZooKeeper and a SparkSession, and what it takes to use them."""

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.browser import chromium
from tests.postgres_server import PostgresMissing, PostgresServer
from tests.redis_server import RedisMissing, RedisServer
from tests.settings import settings_of
from tests.still_network import own_network
from tests.waiting import HANGS_S

from lowtide.api import Flow
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.driver.job import Job
from lowtide.driver.session import start_session
from lowtide.embedded import EmbeddedServices

SLOTS = 12


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL; without one on this machine the test is left out, and a run's last lines say so."""
    try:
        with PostgresServer() as server:
            yield server
    except PostgresMissing as error:
        _leave_out(error)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A real Redis; without one on this machine the test is left out, and a run's last lines say so."""
    try:
        with RedisServer() as server:
            yield server
    except RedisMissing as error:
        _leave_out(error)


def _leave_out(missing: Exception) -> None:
    """Leave a test out whose server is not there; fail where all servers are needed (`make outlets-chaos`)."""
    if os.environ.get("SERVERS") == "needed":
        pytest.fail(str(missing))
    pytest.skip(str(missing))


def unique(name: str) -> str:
    """A name that no other test has: a job's stays in ZooKeeper, and its lasts topic in Kafka, for good."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True)
class Kafka:
    """A broker on loopback."""

    services: EmbeddedServices

    @property
    def address(self) -> str:
        return self.services.kafka

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic whose name begins with `name` and that no other test has; returns its name."""
        chosen = unique(name)
        conf = {"kafka.bootstrap_servers": self.address, "kafka.reach_limit_ms": round(HANGS_S * 1000)}
        topics = Topics(Conf.load(None, conf).kafka)
        topics.create(chosen, partitions=partitions, config={k.replace("_", "."): v for k, v in config.items()})
        return chosen

    def produce(self, topic: str, records: Iterable[Mapping[str, Any] | bytes], partition: int = 0) -> None:
        """Write records, in order, and wait until the broker has them; dicts go as JSON."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 1, "enable.idempotence": True})
        for record in records:
            value = record if isinstance(record, bytes) else json.dumps(record).encode()
            producer.produce(topic, value, partition=partition)
            producer.poll(0)
        assert producer.flush(HANGS_S) == 0

    def messages(self, topic: str, count: int = 0, within_s: float = HANGS_S) -> list[Any]:
        """Read a topic from its beginning: what is committed, or as much as it takes to have `count` messages.

        Returns:
            confluent_kafka's messages, those of one partition in their order.
        """
        from confluent_kafka import Consumer, TopicPartition

        # fmt: off
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "none", "enable.auto.commit": False,
                             "isolation.level": "read_committed", "enable.partition.eof": True})
        # fmt: on
        try:
            partitions = consumer.list_topics(topic, timeout=HANGS_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            found: list[Any] = []
            ended: set[int] = set()
            deadline = time.monotonic() + within_s
            while time.monotonic() < deadline and (len(found) < count or len(ended) < len(partitions)):
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is None:
                    ended.discard(message.partition() or 0)
                    found.append(message)
                else:
                    ended.add(message.partition() or 0)
            return found
        finally:
            consumer.close()

    def records(self, topic: str, count: int = 0, within_s: float = HANGS_S) -> list[Any]:
        """The same, each message's value read as JSON."""
        return [json.loads(message.value()) for message in self.messages(topic, count, within_s)]


@pytest.fixture(name="kafka", scope="session")
def _kafka(kafka_services: EmbeddedServices) -> Kafka:
    return Kafka(kafka_services)


@pytest.fixture(name="browser", scope="module")
def _browser() -> Iterator[Any]:
    """A Chromium; not for longer than a module, as other tests may not run an event loop beside it."""
    with own_network(), chromium() as browser:
        yield browser


@pytest.fixture(name="unique", scope="session")
def _unique() -> Callable[[str], str]:
    """Makes names for jobs."""
    return unique


@dataclass(frozen=True)
class Spark:
    """One SparkSession with the plugin, in which jobs run one after the other."""

    kafka: Kafka
    zookeeper: str
    session: Any
    folder: Path

    @contextmanager
    def job(self, flow: Flow, **settings: object) -> Iterator[Job]:
        """Run a flow until the block ends; settings as `exchange__max_frame_rows=2`."""
        conf = self.conf(**settings)
        job = Job.start(flow, conf)
        try:
            job.wait_for_workers(HANGS_S)
            yield job
        finally:
            job.stop()

    def conf(self, **settings: object) -> Conf:
        given = {key.replace("__", "."): value for key, value in settings.items()}
        return Conf.load(None, self.settings() | given)

    def settings(self) -> dict[str, object]:
        return settings_of(self.kafka, self.zookeeper, self.folder, SLOTS)


@pytest.fixture(name="spark", scope="session")
def _spark(kafka: Kafka, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    spark = Spark(kafka, zookeeper, None, tmp_path_factory.mktemp("spark"))
    session = start_session(spark.conf(), "tests")
    try:
        yield dataclasses.replace(spark, session=session)
    finally:
        session.stop()
