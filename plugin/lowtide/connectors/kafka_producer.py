"""Delivery to Kafka: one idempotent producer per worker, records in the order they were given, per lane.

Until sinks commit in transactions with their position, this delivers each record at least once: a life that ends
and is started again reads its input again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lowtide.errors import FrameTooLarge, LowtideError, ServiceUnavailable

QUEUE_MESSAGES = 200_000
QUEUE_KBYTES = 64 << 10
MAX_RECORD_BYTES = 1_000_000
"""What librdkafka itself takes where nobody says more."""
SLACK_BYTES = 64 << 10
"""For a record's headers and Kafka's own, beside key and value."""
POLL_S = 0.1
SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 1,
    "queue.buffering.max.messages": QUEUE_MESSAGES,
    "delivery.report.only.error": True,
    "retry.backoff.ms": 5,
}

Headers = list[tuple[str, str | bytes | None]]
Outgoing = tuple[str, int, bytes | None, bytes | None, int, Headers | None]
"""`(topic, partition, key, value, timestamp in ms, headers)`."""


class KafkaDelivery:
    """The sinks of one worker.

    Args:
        settings: librdkafka's, with the bootstrap servers and the security; they win over `SETTINGS`.
        delivery_limit_ms: How long Kafka may take for one record before the life ends.
        max_record_bytes: What key and value of one record may have; whether its topic takes it is the broker's word.
    """

    def __init__(
        self, settings: Mapping[str, Any], delivery_limit_ms: int, max_record_bytes: int = MAX_RECORD_BYTES
    ) -> None:
        self._delivery_limit_ms = delivery_limit_ms
        self._max_record_bytes = max_record_bytes
        self._brokers = str(settings.get("bootstrap.servers"))
        self._error: Exception | None = None
        self._waiting: deque[Outgoing] = deque()
        self._producer = Producer(
            SETTINGS
            | {
                "message.timeout.ms": delivery_limit_ms,
                "message.max.bytes": max_record_bytes + SLACK_BYTES,
                # A record that is larger than the whole queue would wait for room for ever.
                "queue.buffering.max.kbytes": max(QUEUE_KBYTES, 2 * max_record_bytes >> 10),
            }
            | dict(settings)
            | {"on_delivery": self._failed, "error_cb": self._broker_error}
        )

    def send(self, messages: Iterator[Outgoing]) -> None:
        """Hand messages over; what the producer's queue has no room for waits here, in order."""
        if self._waiting:
            self._waiting.extend(messages)
            return
        produce = self._producer.produce
        for message in messages:
            topic, partition, key, value, timestamp, headers = message
            try:
                if headers is None:
                    produce(topic, value, key, partition, timestamp=timestamp)
                else:
                    produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
            except BufferError:
                self._waiting.append(message)
                self._waiting.extend(messages)
                return
            except KafkaException as error:
                raise self._refused(message, error.args[0]) from None

    def serve(self) -> None:
        """Take what librdkafka reports; raises what went wrong with a record since the last call."""
        self._producer.poll(0)
        if self._error is not None:
            raise self._error
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            self.send(iter(waiting))

    def full(self) -> bool:
        """Return whether the worker should take no more input for now."""
        return bool(self._waiting)

    def close(self, timeout_s: float) -> int:
        """Deliver what is left, and return how many records could not be delivered in time."""
        deadline = time.monotonic() + timeout_s
        while self._waiting and self._error is None and (rest := deadline - time.monotonic()) > 0:
            self._producer.poll(min(POLL_S, rest))
            self.serve()
        return int(self._producer.flush(max(0.0, deadline - time.monotonic()))) + len(self._waiting)

    def _failed(self, error: KafkaError | None, message: Message) -> None:
        if error is None or self._error is not None:
            return
        where = f"broker {self._brokers}, partition {message.partition()}"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._error = FrameTooLarge(
                f'topic "{message.topic()}" does not take a record of {_size(message.key(), message.value())} bytes',
                where=where,
                way_out="raise the topic's max.message.bytes, or make the record smaller",
            )
            return
        self._error = ServiceUnavailable(
            f'Kafka did not take a record for topic "{message.topic()}" within {self._delivery_limit_ms} ms: '
            f"{error.str()}",
            where=where,
            way_out="see that the broker runs and the topic has its partitions, then start the job again",
        )

    def _refused(self, message: Outgoing, error: KafkaError) -> LowtideError:
        topic, partition, key, value, _, _ = message
        where = f"broker {self._brokers}, partition {partition}"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return FrameTooLarge(
                f'a record of {_size(key, value)} bytes for topic "{topic}" is larger than a record may be, '
                f"{self._max_record_bytes} bytes",
                where=where,
                way_out="raise exchange.max_frame_bytes in the configuration and, if it is lower, the topic's "
                "max.message.bytes; or make the record smaller",
            )
        return ServiceUnavailable(
            f'a record for topic "{topic}" was refused before it was sent: {error.str()}',
            where=where,
            way_out="see that the topic is there and has its partitions, then start the job again",
        )

    def _broker_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._error = self._error or ServiceUnavailable(
                f"Kafka's client gave up: {error.str()}", where=f"broker {self._brokers}"
            )


def _size(key: bytes | None, value: bytes | None) -> int:
    return len(key or b"") + len(value or b"")
