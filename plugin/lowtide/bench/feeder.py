"""Fills the state of the running count through Kafka, a process of its own: `python -m lowtide.bench.feeder`."""

from __future__ import annotations

import time

from lowtide.bench.child import Parent
from lowtide.bench.counted import state_message
from lowtide.bench.generator import FLUSH_LIMIT_S, SAY_EVERY_NS, SETTINGS


def main() -> None:
    """Send one record of each key as fast as Kafka takes them; say `fed`, how many it took, then wait to be ended."""
    from confluent_kafka import Producer

    parent = Parent()
    task = parent.task
    topic, partitions, count = task["topic"], task["partitions"], task["state_keys"]
    failed = 0

    def count_failed(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer({"bootstrap.servers": task["kafka"], "on_delivery": count_failed, **SETTINGS})
    said_at = time.time_ns()
    for number in range(count):
        key, value = state_message(number, said_at)
        while True:
            try:
                producer.produce(topic, value, key, number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        now = time.time_ns() if number % 1000 == 0 else said_at
        if now - said_at > SAY_EVERY_NS:
            said_at = now
            producer.poll(0)
            parent.say(sent=number)
    unsent = producer.flush(FLUSH_LIMIT_S)
    parent.say(fed=count - unsent - failed)
    parent.wait()


if __name__ == "__main__":
    main()
