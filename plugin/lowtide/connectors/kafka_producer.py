"""Delivery to Kafka: one idempotent producer per worker, records in the order they were given, per lane.

Until sinks commit in transactions with their position, this delivers each record at least once: a life that ends
and is started again reads its input again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lowtide.errors import ServiceUnavailable

QUEUE_MESSAGES = 200_000
SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    "queue.buffering.max.messages": QUEUE_MESSAGES,
    "queue.buffering.max.kbytes": 64 << 10,
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
    """

    def __init__(self, settings: Mapping[str, Any], delivery_limit_ms: int) -> None:
        self._delivery_limit_ms = delivery_limit_ms
        self._brokers = str(settings.get("bootstrap.servers"))
        self._error: Exception | None = None
        self._waiting: deque[Outgoing] = deque()
        self._producer = Producer(
            SETTINGS
            | {"message.timeout.ms": delivery_limit_ms}
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
                raise self._refused(topic, error) from None

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
        while self._waiting and timeout_s > 0 and self._error is None:
            self._producer.poll(0.1)
            timeout_s -= 0.1
            self.serve()
        return int(self._producer.flush(timeout_s)) + len(self._waiting)

    def _failed(self, error: KafkaError | None, message: Message) -> None:
        if error is None or self._error is not None:
            return
        self._error = ServiceUnavailable(
            f'Kafka did not take a record for topic "{message.topic()}" within {self._delivery_limit_ms} ms: '
            f"{error.str()}",
            where=f"broker {self._brokers}, partition {message.partition()}",
            way_out="see that the broker runs and the topic has its partitions, then start the job again",
        )

    def _refused(self, topic: str, error: KafkaException) -> ServiceUnavailable:
        cause = error.args[0]
        return ServiceUnavailable(
            f'a record for topic "{topic}" was refused before it was sent: {cause.str()}',
            where=f"broker {self._brokers}",
            way_out="for a record that is too large raise the topic's max.message.bytes, or make it smaller",
        )

    def _broker_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._error = self._error or ServiceUnavailable(
                f"Kafka's client gave up: {error.str()}", where=f"broker {self._brokers}"
            )
