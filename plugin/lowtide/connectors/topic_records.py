"""The records of a Kafka topic, for people: read what was committed, write lines."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.errors import ServiceUnavailable

BATCH_RECORDS = 10_000
WAIT_S = 0.2
END_WAIT_MS = 10
"""A broker's wait for more at the end, before it answers that this is the end."""


def read_topic(
    kafka: KafkaConf, name: str, *, newest: int | None = None, follow: bool = False, limit_s: float = math.inf
) -> Iterator[Any]:
    """Yield what a topic shows to a read_committed reader at the time of the call, per partition in order.

    Args:
        kafka: The way in.
        name: The topic.
        newest: Begin so many offsets before each partition's end; by default at its beginning.
        follow: True to continue with new records, instead of ending where the topic ended.
        limit_s: How long Kafka may give nothing of what is still to come.

    Raises:
        TopicUnknown: there is no such topic.
        ServiceUnavailable: no broker answers, or Kafka returned nothing for this time.
    """
    from confluent_kafka import Consumer, TopicPartition

    topics = Topics(kafka)
    found = topics.describe_all([name])
    # The ends are asked for: Kafka tells a reader that it is at the end only where nothing comes for a moment, which
    # on a topic that is written all the time is never.
    starts, ends = topics.earliest(found), topics.ends(found)
    if newest is not None:
        starts = {key: max(start, ends[key] - newest) for key, start in starts.items()}
    consumer: Any = Consumer(
        {
            **librdkafka_settings(kafka),
            "group.id": "lowtide",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # Where Kafka deletes old records meanwhile, it goes on at the oldest that are left, not at the end.
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 500 if follow else END_WAIT_MS,
            "fetch.queue.backoff.ms": 1,
            "log_level": 0,
        }
    )
    try:
        left = {key: end for key, end in ends.items() if follow or starts[key] < end}
        consumer.assign([TopicPartition(*key, starts[key]) for key in left])
        deadline = time.monotonic() + limit_s
        while left:
            for message in consumer.consume(BATCH_RECORDS, WAIT_S):
                key = message.topic(), message.partition()
                if _shown(message, kafka) and (follow or message.offset() < ends[key]):
                    yield message
                    deadline = time.monotonic() + limit_s
                # The last offsets may be transaction markers, which only show in the end event.
                if not follow and message.offset() + (message.error() is None) >= ends[key]:
                    left.pop(key, None)
            if left and time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f'topic "{name}", partitions {sorted(number for _, number in left)}: Kafka returned nothing for '
                    f"{limit_s:g} s before their end",
                    where=f"Kafka at {kafka.bootstrap_servers}",
                    way_out="check that the broker answers: lowtide doctor",
                )
    finally:
        consumer.close()


def _shown(message: Any, kafka: KafkaConf) -> bool:
    """Return whether it is a record; else it marks the end, or a transient fault."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF or error.retriable():
        return error is None
    raise ServiceUnavailable(
        f'cannot read topic "{message.topic()}": {error.str()}', where=f"Kafka at {kafka.bootstrap_servers}"
    )


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
            f'topic "{name}" did not accept {left + len(failed)} of {written} records: {(failed or ["no answer"])[0]}',
            where=f"Kafka at {kafka.bootstrap_servers}",
            way_out="check that the broker runs and the topic has that partition",
        )
    return written
