"""Events as messages: a backlog at once, and a live load, each message when it is due."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lowtide import Stamped
from lowtide import json as as_json
from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide_bench.child import ChildFailed

if TYPE_CHECKING:
    from nexmark.generator import Log

PARTITIONS = {"persons": 1, "auctions": 1, "bids": 2}
FLUSH_LIMIT_S = 60.0
NAP_S = 0.001

Due = tuple[int, str, int, bytes]
"""Time at which it reaches the log, in ms since 1970; its source, partition and value."""


def messages_of(log: Log, sources: Iterable[str]) -> list[Due]:
    """Return the events of these sources as messages, in order of arrival."""
    found: list[Due] = []
    for source in sources:
        events: Sequence[Stamped[Any]] = log.topics[source]
        values = as_json(type(events[0].record)).encode([each.record for each in events]) if events else []
        for place, (each, value) in enumerate(zip(events, values, strict=True)):
            assert value is not None, "an event has a value"
            found.append((int(each.at.timestamp() * 1_000), source, place % PARTITIONS[source], value))
    return sorted(found, key=lambda due: due[0])


def write(kafka: KafkaConf, topics: Mapping[str, str], messages: Iterable[Due], *, paced: bool) -> None:
    """Write messages, with their timestamps; if `paced`, each at its time.

    Raises:
        ChildFailed: Kafka did not take them.
    """
    from confluent_kafka import Producer

    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    settings = {**librdkafka_settings(kafka), "linger.ms": 0 if paced else 5, "enable.idempotence": True}
    producer = Producer({**settings, "queue.buffering.max.messages": 2_000_000, "on_delivery": delivered})
    for due_ms, source, partition, value in messages:
        while paced and time.time() * 1_000 < due_ms:
            producer.poll(NAP_S)
        producer.produce(topics[source], value, partition=partition, timestamp=due_ms)
        producer.poll(0)
    if producer.flush(FLUSH_LIMIT_S) or failed:
        raise ChildFailed(f"Kafka at {kafka.bootstrap_servers} did not take the events: {failed[:1]}")


class Live:
    """A load written by a thread; `over` once all of it is there."""

    def __init__(self, kafka: KafkaConf, topics: Mapping[str, str], messages: list[Due]) -> None:
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(kafka, topics, messages), name="load", daemon=True)
        self._thread.start()

    def over(self) -> bool:
        """Return whether everything is written; raise the error if writing failed."""
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self, kafka: KafkaConf, topics: Mapping[str, str], messages: list[Due]) -> None:
        try:
            write(kafka, topics, messages, paced=True)
        except Exception as error:  # noqa: BLE001 - raised where it is asked for
            self._error = error
