"""What is put into Kafka: records with what has to become durable with them, and what is said when Kafka refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from lowtide.core.rows import Headers
from lowtide.errors import FrameTooLarge, LowtideError, ServiceUnavailable

__all__ = ["SETTINGS", "Headers", "Outgoing", "Packet", "refusal", "too_slow"]

QUEUE_MESSAGES = 200_000
QUEUE_KBYTES = 64 << 10
SLACK_BYTES = 64 << 10
"""For a record's headers and Kafka's own, beside key and value."""
SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    # A transaction is committed as soon as it is produced: nothing is worth waiting for.
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "queue.buffering.max.messages": QUEUE_MESSAGES,
    "delivery.report.only.error": True,
    # librdkafka asks again while the markers of the last transaction are being written.
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 4,
    # After an outage, be back soon.
    "reconnect.backoff.max.ms": 500,
    # What it would print at each attempt to connect stands in our errors.
    "log_level": 2,
}
PERMANENT = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.POLICY_VIOLATION,
    }
)
"""What the same record would meet again."""

Outgoing = tuple[str, int, bytes | None, bytes | None, int, Headers | None]
"""`(topic, partition, key, value, timestamp in ms, headers)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """A bundle on its way into Kafka.

    Attributes:
        sink: The sink's vertex.
        lane: The lane.
        messages: The bundle's records, in order.
        lasts: Key and value of the records for the lasts topic that have to become durable together with them.
    """

    sink: int
    lane: int
    messages: Sequence[Outgoing]
    lasts: Sequence[tuple[bytes, bytes | None]] = ()


def limits(max_record_bytes: int) -> dict[str, Any]:
    """Settings of librdkafka for records of up to this many bytes, key and value together."""
    return {
        "message.max.bytes": max_record_bytes + SLACK_BYTES,
        # A record that is larger than the whole queue would wait for room for ever.
        "queue.buffering.max.kbytes": max(QUEUE_KBYTES, 2 * max_record_bytes >> 10),
    }


def too_large(topic: str, partition: int, size: int, max_record_bytes: int, brokers: str) -> FrameTooLarge:
    """A record that is larger than the configuration allows; size is that of key and value."""
    return FrameTooLarge(
        f'a record of {size} bytes for topic "{topic}" is larger than a record may be, {max_record_bytes} bytes',
        where=f"broker {brokers}, partition {partition}",
        way_out="raise exchange.max_frame_bytes in the configuration and, if it is lower, the topic's "
        "max.message.bytes; or make the record smaller",
    )


def refusal(error: KafkaError, topic: str | None, partition: int | None, size: int, brokers: str) -> LowtideError:
    """What is said of a record that the broker, or the client on its behalf, refuses for good."""
    where = f"broker {brokers}, partition {partition}"
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return FrameTooLarge(
            f'topic "{topic}" does not take a record of {size} bytes',
            where=where,
            way_out="raise the topic's max.message.bytes, or make the record smaller",
        )
    return ServiceUnavailable(
        f'Kafka refuses a record for topic "{topic}": {error.str()}',
        where=where,
        way_out="see that the topic is there, has its partitions and may be written, then start the job again",
    )


def too_slow(what: str, limit_ms: int, reason: str, brokers: str) -> ServiceUnavailable:
    """What is said when Kafka has taken too long."""
    return ServiceUnavailable(
        f"Kafka did not {what} within {limit_ms} ms: {reason}",
        where=f"broker {brokers}",
        way_out="see that the broker runs and the topics have their partitions, or raise [kafka].delivery_limit_ms; "
        "then start the job again",
    )
