"""What all end-to-end tests share: one real Kafka, with what it takes to fill and read its topics."""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from lowtide.conf import Conf
from lowtide.embedded import EmbeddedServices
from lowtide.topics import Topics


@dataclass(frozen=True)
class Kafka:
    """A broker on loopback."""

    services: EmbeddedServices

    @property
    def address(self) -> str:
        return self.services.kafka

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic whose name begins with `name` and that no other test has; returns its name."""
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        topics = Topics(Conf.load(None, {"kafka.bootstrap": self.address}).kafka)
        topics.create(unique, partitions=partitions, config={k.replace("_", "."): v for k, v in config.items()})
        return unique

    def produce(self, topic: str, records: Iterable[Mapping[str, Any] | bytes], partition: int = 0) -> None:
        """Write records, in order, and wait until the broker has them; dicts go as JSON."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 1, "enable.idempotence": True})
        for record in records:
            value = record if isinstance(record, bytes) else json.dumps(record).encode()
            producer.produce(topic, value, partition=partition)
            producer.poll(0)
        assert producer.flush(30) == 0

    def messages(self, topic: str, count: int = 0, within_s: float = 30.0) -> list[Any]:
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
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
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

    def records(self, topic: str, count: int = 0, within_s: float = 30.0) -> list[Any]:
        """The same, each message's value read as JSON."""
        return [json.loads(message.value()) for message in self.messages(topic, count, within_s)]


@pytest.fixture(name="kafka", scope="session")
def _kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with EmbeddedServices(tmp_path_factory.mktemp("kafka") / "services", only=["kafka"]) as services:
        yield Kafka(services)
