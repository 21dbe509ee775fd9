"""Process that reads the output: `python -m lowtide_bench.reader`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from lowtide_bench.child import Parent
from lowtide_bench.flows import records_of
from lowtide_bench.record import Int64s, Records

BATCH = 5_000
POLL_S = 0.1
SAY_EVERY_S = 0.5
LINGER_S = 0.5
"""Time to continue after the last awaited record: a duplicate may still come."""
SETTINGS: dict[str, Any] = {
    "group.id": "lowtide-bench",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    # The broker answers as soon as there is a byte; without any, it may hold the request as long as it likes.
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 100,
    # A client with much unread data pauses its fetches for a second by default.
    "fetch.queue.backoff.ms": 1,
}


class Reader:
    """Reads a topic from its beginning; keeps each message's identity, due time, Kafka timestamp and time of receipt.

    Args:
        records: The kind of records.
        kafka: The bootstrap servers.
        topic: The topic.
        partitions: Its number of partitions.
    """

    def __init__(self, records: Records, kafka: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer({"bootstrap.servers": kafka, **SETTINGS})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._records = records
        # int64[4 and the rows for checks, n] each, one per batch.
        self._blocks: list[Int64s] = []
        self._count = 0
        self._probes = partitions
        self._doubled = 0

    def run(self, parent: Parent) -> None:
        """Read until the number of records that the parent gives has come, or none came for `silence_s`.

        Reports `probed` (the time in ns) once a probe of every partition is there, and `received` now and then.
        """
        said_at = last_at = time.monotonic()
        done_at = float("inf")
        while time.monotonic() < done_at:
            got = self._read()
            now = time.monotonic()
            last_at = now if got else last_at
            self._say_probed(parent)
            if now - said_at > SAY_EVERY_S:
                said_at = now
                parent.say(received=len(self))
            awaited = parent.orders.get("await")
            if awaited is None:
                last_at = now
            elif done_at == float("inf") and (self._has(awaited) or now - last_at > parent.orders["silence_s"]):
                done_at = now + LINGER_S
            if now > parent.orders.get("until", float("inf")):
                break
        self._consumer.close()

    def save(self, file: str) -> None:
        """Save the data: int64[4 and more, n]."""
        np.save(file, self._all())

    def __len__(self) -> int:
        return self._count

    def _read(self) -> int:
        # `consume` with a time-out waits until it is full, so take only what is there already.
        first = self._consumer.poll(POLL_S)
        if first is None:
            return 0
        messages = [first, *self._consumer.consume(BATCH, 0)]
        now = time.time_ns()
        good = [message for message in messages if not message.error()]
        if not good:
            return len(messages)
        known = self._records.read([message.value() or b"" for message in good])
        stamps = [message.timestamp()[1] for message in good]
        self._blocks.append(np.vstack((known[:2], stamps, np.full(len(good), now), known[2:])))
        self._count += len(good)
        return len(messages)

    def _has(self, awaited: int) -> bool:
        """Return whether this many different records have come."""
        if len(self) - self._doubled < awaited:
            return False
        self._doubled = len(self) - len(np.unique(self._all()[0]))
        return len(self) - self._doubled >= awaited

    def _say_probed(self, parent: Parent) -> None:
        if self._probes and self._count and len(np.unique(self._all()[0])) >= self._probes:
            self._probes = 0
            parent.say(probed=int(self._blocks[0][3, 0]))

    def _all(self) -> Int64s:
        """Everything so far as one block."""
        if len(self._blocks) != 1:
            self._blocks = [np.hstack(self._blocks) if self._blocks else np.empty((4, 0), np.int64)]
        return self._blocks[0]


def main() -> None:
    """Read, save, say so, then wait to be ended."""
    parent = Parent()
    task = parent.task
    reader = Reader(records_of(task["flow"], passed=task["passed"]), task["kafka"], task["topic"], task["partitions"])
    parent.say(ready=True)
    reader.run(parent)
    reader.save(task["file"])
    parent.say(saved=len(reader))
    parent.wait()


if __name__ == "__main__":
    main()
