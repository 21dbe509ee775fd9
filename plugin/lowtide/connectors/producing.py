"""librdkafka's producer with our settings, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lowtide.connectors.outgoing import PERMANENT, SETTINGS, Outgoing, limits, refusal, too_large
from lowtide.errors import LowtideError

__all__ = ["Producing"]

ROOM_S = 0.05
"""How long the queue is given to make room before it is looked at again."""
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
UNKNOWN_MS = 10_000
"""How long a topic may be unknown to a broker that has just been told of it, or has just started."""


class Producing:
    """A producer, and why it failed.

    Args:
        settings: librdkafka's; they win over our own.
        delivery_limit_ms: How long Kafka may take for one record.
        max_record_bytes: What key and value of one record may have; whether its topic takes it is the broker's word.

    Attributes:
        producer: librdkafka's.
        failed: What the first record met that was not taken, None if all were.
        reason: What was last said of a broker, empty if nothing was.
    """

    def __init__(self, settings: Mapping[str, Any], delivery_limit_ms: int, max_record_bytes: int) -> None:
        self.brokers = str(settings.get("bootstrap.servers"))
        self.failed: tuple[KafkaError, Message] | None = None
        self.reason = ""
        self._max_record_bytes = max_record_bytes
        own = SETTINGS | limits(max_record_bytes) | {"message.timeout.ms": delivery_limit_ms}
        own["topic.metadata.propagation.max.ms"] = min(UNKNOWN_MS, delivery_limit_ms // 2)
        # With only errors reported, a callback costs a record nothing.
        reports = {"on_delivery": self._undelivered, "error_cb": self._broker_error}
        self.producer = Producer(own | dict(settings) | reports)

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

    def refused(self) -> LowtideError | None:
        """What to say of the record that failed, if it would fail again."""
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
