"""The records of a Kafka topic, for people: read what was committed, write lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.errors import ServiceUnavailable

__all__ = ["read_topic", "write_topic"]

BATCH_RECORDS = 1_000
WAIT_S = 0.2


def read_topic(kafka: KafkaConf, name: str, *, follow: bool = False) -> Iterator[Any]:
    """Yield the messages of a topic from its beginning, committed ones only.

    Args:
        kafka: The way in.
        name: The topic.
        follow: Whether to go on with what comes, instead of ending where the topic ended.

    Raises:
        TopicUnknown: there is no such topic.
        ServiceUnavailable: no broker answers.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    left = set(range(Topics(kafka).describe(name).partitions))
    consumer = Consumer(
        {
            **librdkafka_settings(kafka),
            "group.id": "lowtide",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in left])
        while left or follow:
            for message in consumer.consume(BATCH_RECORDS, WAIT_S):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif not error.retriable():
                    raise ServiceUnavailable(
                        f'topic "{name}" cannot be read: {error.str()}', where=f"Kafka at {kafka.bootstrap_servers}"
                    )
    finally:
        consumer.close()


def write_topic(kafka: KafkaConf, name: str, values: Iterable[bytes], partition: int | None = None) -> int:
    """Write values to a topic, and return how many, once the broker has all of them.

    Args:
        kafka: The way in.
        name: The topic.
        values: One per record.
        partition: Where to; by default partitions take turns.

    Raises:
        TopicUnknown: there is no such topic.
        ServiceUnavailable: the broker did not take all of them.
    """
    from confluent_kafka import Producer

    count = Topics(kafka).describe(name).partitions
    turns = itertools.cycle(range(count) if partition is None else [partition])
    failed: list[str] = []

    def seen(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error.str())

    producer = Producer({**librdkafka_settings(kafka), "log_level": 0, "on_delivery": seen})
    written = 0
    for value in values:
        while True:
            try:
                producer.produce(name, value, partition=next(turns))
                break
            except BufferError:
                producer.poll(WAIT_S)
        written += 1
    left = producer.flush(kafka.delivery_limit_ms / 1000)
    if left or failed:
        raise ServiceUnavailable(
            f'topic "{name}" did not take {left + len(failed)} of {written} records: {(failed or ["no answer"])[0]}',
            where=f"Kafka at {kafka.bootstrap_servers}",
            way_out="see that the broker runs and the topic has that partition",
        )
    return written
