"""Messages on their way into Kafka, and librdkafka's producer."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lowtide.errors import FrameTooLarge, LifeEnded, LowtideError, ServiceUnavailable
from lowtide.flow.schema.headers import Headers

__all__ = ["SETTINGS", "Headers", "Outgoing", "Sender", "refusal", "too_slow"]


QUEUE_MESSAGES = 200_000
QUEUE_KBYTES = 64 << 10
SLACK_BYTES = 64 << 10
"""For a record's headers and Kafka's own, in addition to key and value."""
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
    # Our errors report failed connections; its line for each attempt would only repeat them.
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
"""Errors that the same record would meet again."""

Outgoing = tuple[str, int, bytes | None, bytes | None, int, Headers | None]
"""`(topic, partition, key, value, timestamp in ms, headers)`."""


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
    """Return the error for a record that the broker, or the client on its behalf, refuses for good."""
    where = f"broker {brokers}, partition {partition}"
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return FrameTooLarge(
            f'topic "{topic}" does not accept a record of {size} bytes',
            where=where,
            way_out="raise the topic's max.message.bytes, or make the record smaller",
        )
    return ServiceUnavailable(
        f'Kafka refuses a record for topic "{topic}": {error.str()}',
        where=where,
        way_out="check that the topic exists, has its partitions and may be written, then start the job again",
    )


def too_slow(what: str, limit_ms: int, reason: str, brokers: str) -> ServiceUnavailable:
    """Return the error for a Kafka that takes too long."""
    return ServiceUnavailable(
        f"Kafka did not {what} within {limit_ms} ms: {reason}",
        where=f"broker {brokers}",
        way_out="check that the broker runs and the topics have their partitions, or raise [kafka].delivery_limit_ms; "
        "then start the job again",
    )


UNUSED = frozenset({"INIT", "DOWN", "TRY_CONNECT", "CONNECT", "SSL_HANDSHAKE"})
"""librdkafka's states of a connection through which nothing was sent. A client logs in on one in use, too."""
STATE = re.compile(r"in state (\w+)")


COORDINATOR = "TxnCoordinator"
"""librdkafka's name for the connection through which transactions are ended, and little else goes."""


class _Log:
    """Notes in librdkafka's log that the connection to the coordinator has failed after requests went through it.

    After the first failure of a kind it says nothing of others like it for a while, so what counts is whether there
    ever was one.

    Attributes:
        failed: Whether there was one.
    """

    def __init__(self) -> None:
        self.failed = False

    def log(self, level: int, message: str, *said: str) -> None:
        """Take a line; called by the client, from within its `poll`. `said` has its kind, the client and the text."""
        if said[0] == "FAIL" and COORDINATOR in said[-1]:
            state = STATE.search(said[-1])
            self.failed |= state is None or state[1] not in UNUSED
        if level <= logging.DEBUG:  # The user has set `debug` to read it.
            sys.stderr.write(f"{message % said}\n")


ROOM_S = 0.05
"""Wait for room in a full queue before checking it again."""
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
UNKNOWN_MS = 10_000
"""Time for which a broker that has just learnt of a topic, or has just started, may not know it."""


class Sender:
    """A producer, and why it failed.

    Args:
        settings: librdkafka's; they win over our own.
        delivery_limit_ms: How long Kafka may take for one record.
        max_record_bytes: What key and value of one record may have; whether its topic takes it is the broker's word.

    Attributes:
        producer: librdkafka's.
        transactional_id: Under which it produces; empty for none.
        failed: What the first record met that was not taken, None if all were.
        reason: What was last said of a broker, empty if nothing was.
    """

    def __init__(self, settings: Mapping[str, Any], delivery_limit_ms: int, max_record_bytes: int) -> None:
        self.brokers = str(settings.get("bootstrap.servers"))
        self.transactional_id = str(settings.get("transactional.id", ""))
        self.failed: tuple[KafkaError, Message] | None = None
        self.reason = ""
        self._limit_ms, self._max_record_bytes = delivery_limit_ms, max_record_bytes
        own = SETTINGS | limits(max_record_bytes) | {"message.timeout.ms": delivery_limit_ms}
        own["topic.metadata.propagation.max.ms"] = min(UNKNOWN_MS, delivery_limit_ms // 2)
        # With only errors reported, a callback costs a record nothing.
        reports = {"on_delivery": self._undelivered, "error_cb": self._broker_error}
        self._log = _Log()
        # A connection that closes during a request shows only in the log.
        logged = {"logger": self._log, "log_level": 6, "log.connection.close": True}
        self.producer = Producer(own | dict(settings) | reports | logged)

    @property
    def trouble(self) -> str:
        """Return where the brokers are, and what was last said of one; empty if nothing was."""
        return f"Kafka at {self.brokers}: {self.reason}" if self.reason else ""

    def lost_coordinator(self) -> bool:
        """True once this producer has lost its coordinator, so that a request may have been sent twice; 0.3 µs."""
        if not self._log.failed:
            self.producer.poll(0)
        return self._log.failed

    def produce(self, messages: Iterable[Outgoing], patience: Callable[[], None]) -> None:
        """Hand records over, in order; 0.5 µs each.

        Args:
            messages: The records.
            patience: Called while the client's queue has no room; raises when that takes too long.

        Raises:
            LowtideError: The client refuses a record.
            KafkaException: It takes no more records at all; ask it why.
        """
        produce: Any = self.producer.produce
        for topic, partition, key, value, timestamp, headers in messages:
            while True:
                try:
                    produce(topic, value, key, partition, None, None, timestamp, headers)
                    break
                except BufferError:
                    patience()
                    self.producer.poll(ROOM_S)
                except KafkaException as caught:
                    size = len(key or b"") + len(value or b"")
                    raise self._refused(caught, topic, partition, size) from caught

    def check(self, what: str) -> None:
        """See whether every record was taken (errors: LowtideError); `what` stands after "Kafka did not"."""
        refused = self.refused()
        if refused is not None:
            raise refused
        if self.failed is not None:
            error = self.failed[0]
            raise self.ended(error) if error.fatal() else self.too_slow(what, error.str())

    def ended(self, error: KafkaError) -> LifeEnded:
        """Return the error of a client that takes no more records at all."""
        return LifeEnded(
            f"Kafka's client has failed: {error.str()}",
            where=f"broker {self.brokers}",
            way_out="start the job again",
        )

    def too_slow(self, what: str, reason: str) -> ServiceUnavailable:
        """Return the error for a Kafka that takes too long; the reason is what was last said of a broker, or this."""
        return too_slow(what, self._limit_ms, self.reason or reason, self.brokers)

    def refused(self) -> LowtideError | None:
        """Return the error for the record that failed, if it would fail again."""
        if self.failed is None or self.failed[0].code() not in PERMANENT:
            return None
        error, message = self.failed
        size = len(message.key() or b"") + len(message.value() or b"")
        return refusal(error, message.topic(), message.partition(), size, self.brokers)

    def _refused(self, caught: KafkaException, topic: str, partition: int, size: int) -> Exception:
        error = caught.args[0]
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return too_large(topic, partition, size, self._max_record_bytes, self.brokers)
        return refusal(error, topic, partition, size, self.brokers) if error.code() in PERMANENT else caught

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.failed is None and error.code() not in PURGED:
            self.failed = (error, message)

    def _broker_error(self, error: KafkaError) -> None:
        self.reason = error.str()
