"""Records of the windowed count, and its output: made, sent and read by processes of their own. See `windowing`."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lowtide import Window
from lowtide.flow.schema.raw_record import Raw
from lowtide_bench.backlog import Message
from lowtide_bench.child import Parent
from lowtide_bench.counted import SPREAD
from lowtide_bench.reader import BATCH, POLL_S
from lowtide_bench.reader import SETTINGS as READER
from lowtide_bench.record import Int64s
from lowtide_bench.schedule import NS

RESULTS = np.dtype([("key", "<i8"), ("end_ms", "<i8"), ("count", "<i8")])
SENT = struct.Struct("<8sqqq")
"""Layout of the running count's values: key, number, due, and bytes for a count."""
BESIDE_PER_S = 200
"""Records per second of the other branch."""
SAY_EVERY_S = 0.5
SINK, BESIDE = 0, 1
"""Kind of a row of the reader: a result, or a record of the other branch."""


def result_of(window: Window, seen: int) -> Raw:
    """Return a window's result, with its end and its count: the user's function."""
    (key,) = window.key
    end_ms = round(window.end.timestamp() * 1_000)
    return Raw(key, key + end_ms.to_bytes(8, "little") + seen.to_bytes(8, "little"))


def message(number: int, keys: int, due_ns: int) -> tuple[bytes, bytes]:
    """Return key and value of a record; neighbours have keys far apart, and all come equally often."""
    key = b"%08d" % (number * SPREAD % keys)
    return key, SENT.pack(key, number, due_ns, 0)


def backlog(task: Mapping[str, Any]) -> Iterator[Message]:
    """Return a log of this many records whose timestamps are spread evenly from a first to a last."""
    count, keys, first, last = task["records"], task["keys"], task["first_ms"], task["last_ms"]
    for number in range(count):
        stamp = first + number * (last - first) // max(1, count - 1)
        yield number % task["partitions"], *message(number, keys, stamp * 1_000_000), stamp


class Reader:
    """Reads two topics from their beginnings; keeps each message's kind, its own time in ns and its time of receipt."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._topics = [topic for topic in (task["sink"], task["beside"]) if topic]
        self._consumer = Consumer({"bootstrap.servers": task["kafka"], **READER})
        partitions = range(task["partitions"])
        self._consumer.assign([TopicPartition(topic, each, 0) for topic in self._topics for each in partitions])
        self._results = task["results"]
        self._blocks: list[Int64s] = []
        self.counts = [0, 0]

    def read(self) -> None:
        """Take what is there, as soon as one message is."""
        # `consume` with a time-out waits until it is full, so take only what is there already.
        first = self._consumer.poll(POLL_S)
        if first is None:
            return
        messages = [first, *self._consumer.consume(BATCH, 0)]
        now = time.time_ns()
        for what, topic in enumerate(self._topics):
            values = [each.value() or b"" for each in messages if each.error() is None and each.topic() == topic]
            if values:
                self.counts[what] += len(values)
                self._blocks.append(np.vstack([self._known(what, values), np.full((1, len(values)), now)]))

    def _known(self, what: int, values: list[bytes]) -> Int64s:
        data = b"".join(values)
        if what == SINK and self._results:
            rows = np.frombuffer(data, RESULTS)
            return np.array([np.full(len(rows), what), rows["key"], rows["count"], rows["end_ms"] * 1_000_000])
        sent = np.frombuffer(data, np.int64).reshape(-1, 4)
        return np.array([np.full(len(sent), what), sent[:, 0], sent[:, 1], sent[:, 2]])

    def save(self, file: str) -> None:
        """Save all of it: kind, key, count or number, its time, time of receipt; int64[5, n]."""
        np.save(file, np.hstack(self._blocks) if self._blocks else np.empty((5, 0), np.int64))


def read(parent: Parent) -> None:
    """Read until the parent sends `save`, then write the file."""
    reader, said_at = Reader(parent.task), 0.0
    parent.say(ready=True)
    while "save" not in parent.orders:
        reader.read()
        if time.monotonic() - said_at > SAY_EVERY_S:
            said_at = time.monotonic()
            parent.say(counts=reader.counts)
    reader.save(parent.task["file"])
    parent.say(saved=True)


def send(parent: Parent) -> None:
    """Send a log at once, or records at an even rate between two times, with the other branch's beside them."""
    from confluent_kafka import Producer

    from lowtide_bench.generator import FLUSH_LIMIT_S, SETTINGS

    task = parent.task
    producer = Producer({"bootstrap.servers": task["kafka"], **SETTINGS})

    def put(topic: str, partition: int, key: bytes, value: bytes, stamp_ms: int = 0) -> None:
        while True:
            try:
                return producer.produce(topic, value, key, partition, timestamp=stamp_ms)
            except BufferError:
                producer.poll(0.01)

    if "first_ms" in task:
        for partition, key, value, stamp in backlog(task):
            assert key is not None
            put(task["source"], partition, key, value, stamp)
    else:
        streams = [[task["rate"], task["source"], task["keys"], 0], [BESIDE_PER_S, task["beside"], 1_000, 0]]
        start, until, partitions = task["start_ns"], task["until_ns"], task["partitions"]
        while (now := time.time_ns()) < until:
            for stream in streams:
                rate, topic, keys, sent = stream
                due = max(0, (now - start) * rate // NS)
                for number in range(sent, min(due, sent + 2_000)):
                    put(topic, number % partitions, *message(number, keys, start + number * NS // rate))
                    stream[3] = number + 1
            producer.poll(0)
            time.sleep(0.001)
    left = producer.flush(FLUSH_LIMIT_S)
    parent.say(sent=True, failed=left)


def main() -> None:
    """Run the task: `read` or `send`."""
    parent = Parent()
    {"read": read, "send": send}[parent.task["do"]](parent)
    parent.wait()


if __name__ == "__main__":
    main()
