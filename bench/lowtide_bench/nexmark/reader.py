"""Process that reads results with their times of receipt: `python -m lowtide_bench.nexmark.reader`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from lowtide_bench.child import Parent
from lowtide_bench.reader import BATCH, POLL_S, SETTINGS
from lowtide_bench.record import Int64s


def read(consumer: Any, parent: Parent) -> Int64s:
    """Read until the parent sends `end`: int64[2, n], Kafka's timestamp in ms and the time of receipt in ns."""
    blocks: list[Int64s] = [np.empty((2, 0), np.int64)]
    while "end" not in parent.orders:
        first = consumer.poll(POLL_S)
        if first is None:
            continue
        messages = [first, *consumer.consume(BATCH, 0)]
        now = time.time_ns()
        stamps = [message.timestamp()[1] for message in messages if not message.error()]
        blocks.append(np.vstack((np.array(stamps, np.int64), np.full(len(stamps), now))))
    return np.hstack(blocks)


def main() -> None:
    """Read, save, report that, then wait to be ended."""
    from confluent_kafka import Consumer, TopicPartition

    parent = Parent()
    task = parent.task
    consumer = Consumer({"bootstrap.servers": task["kafka"], **SETTINGS})
    consumer.assign([TopicPartition(task["topic"], partition, 0) for partition in range(task["partitions"])])
    parent.say(ready=True)
    came = read(consumer, parent)
    consumer.close()
    np.save(task["file"], came)
    parent.say(saved=came.shape[1])
    parent.wait()


if __name__ == "__main__":
    main()
