"""Sees the job's output come, from outside: a read_committed reader with a clock."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Self

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings


class Reader:
    """Notes when messages of a topic come, for as long as the block lasts."""

    def __init__(self, kafka: KafkaConf, topic: str, partitions: int) -> None:
        self.count = 0
        self._kafka, self._topic, self._partitions = kafka, topic, partitions
        self._times: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def silence_s(self, since: float) -> float:
        """The longest time without output since a moment of the monotonic clock, which has ended with output."""
        return longest_silence_s(list(self._times), since)

    def await_more(self, within_s: float) -> None:
        """Wait until more has come, for so long at most."""
        before, deadline = self.count, time.monotonic() + within_s
        while self.count == before and time.monotonic() < deadline:
            time.sleep(0.02)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            **librdkafka_settings(self._kafka),
            "group.id": "chaos",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
            while not self._over.is_set():
                came = sum(message.error() is None for message in consumer.consume(1000, 0.05))
                if came:
                    self.count += came
                    self._times.append(time.monotonic())
        finally:
            consumer.close()


def longest_silence_s(times: list[float], since: float) -> float:
    """Of ascending moments, the longest time between two, the second of which is not before `since`; 0 without any."""
    return max((after - before for before, after in pairwise(times) if after >= since), default=0.0)
