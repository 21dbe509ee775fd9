"""The bare loop, a process of its own: librdkafka consumes, librdkafka produces, and nothing between them.

It is the floor for any Python program between two topics: `python -m lowtide_bench.bare`.
"""

from __future__ import annotations

import time
from typing import Any

from lowtide.connectors.sender import SETTINGS as PRODUCER
from lowtide.histogram import Histogram
from lowtide_bench.child import Parent
from lowtide_bench.reader import SETTINGS as CONSUMER

BATCH = 2_000
POLL_S = 0.1
SAY_EVERY_S = 0.5


class BareLoop:
    """Passes every record on, with the settings of Lowtide's own sink and of the benchmark's reader.

    It lingers for 1 ms, because no transaction gathers its records.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._to = task["to"]
        self._consumer = Consumer({"bootstrap.servers": task["kafka"], **CONSUMER})
        self._consumer.assign([TopicPartition(task["from"], partition, 0) for partition in range(task["partitions"])])
        self._producer = Producer({"bootstrap.servers": task["kafka"], **PRODUCER, "linger.ms": 1})
        self._source = Histogram()

    def run(self, parent: Parent) -> None:
        """Run until the parent ends the process; report now and then how long its records took to arrive."""
        said_at = 0.0
        while True:
            first = self._consumer.poll(POLL_S)
            if first is not None:
                self._pass([first, *self._consumer.consume(BATCH, 0)])
            self._producer.poll(0)
            if time.monotonic() - said_at > SAY_EVERY_S:
                said_at = time.monotonic()
                parent.say(source=self._source.counts)

    def _pass(self, messages: list[Any]) -> None:
        now = time.time_ns()
        stamp = 0
        for message in messages:
            if message.error():
                continue
            stamp = message.timestamp()[1]
            self._send(message.value(), message.key(), message.partition(), stamp)
        if stamp:
            # The last timestamp stands for all: one look per batch keeps the loop bare.
            self._source.add(now - stamp * 1_000_000, len(messages))

    def _send(self, value: bytes, key: bytes | None, partition: int, stamp: int) -> None:
        while True:
            try:
                self._producer.produce(self._to, value, key, partition, timestamp=stamp)
                return
            except BufferError:
                self._producer.poll(0.01)


def main() -> None:
    """Pass records on until the end."""
    parent = Parent()
    BareLoop(parent.task).run(parent)


if __name__ == "__main__":
    main()
