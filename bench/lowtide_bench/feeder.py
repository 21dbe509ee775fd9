"""Process that sends many records as fast as Kafka takes them: `python -m lowtide_bench.feeder`.

They fill the state of the running count, one for each key, or are a backlog that nothing reads yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.backlog import Backlog, Message
from lowtide_bench.child import Parent
from lowtide_bench.counted import state_message
from lowtide_bench.flows import records_of
from lowtide_bench.generator import FLUSH_LIMIT_S, SAY_EVERY_NS, SETTINGS

LOOK_EVERY = 1_000
"""Records to send without looking at the clock."""
NOW = 0
"""A timestamp that the producer replaces with the time of sending."""


def messages_of(task: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the task's records: a `backlog`, or a record of each of `state_keys` keys."""
    if "backlog" in task:
        yield from Backlog(**task["backlog"]).messages(records_of(task["flow"]), task["partitions"])
        return
    began = time.time_ns()
    for number in range(task["state_keys"]):
        key, value = state_message(number, began)
        yield number % task["partitions"], key, value, NOW


def main() -> None:
    """Send everything; report `sent` now and then and at the end `fed`, the number in Kafka; then wait to be ended."""
    from confluent_kafka import Producer

    parent = Parent()
    topic, said_at = parent.task["topic"], time.time_ns()
    sent = failed = 0

    def count_failed(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer({"bootstrap.servers": parent.task["kafka"], "on_delivery": count_failed, **SETTINGS})
    for partition, key, value, stamp_ms in messages_of(parent.task):
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=stamp_ms)
                break
            except BufferError:
                producer.poll(0.01)
        sent += 1
        now = time.time_ns() if sent % LOOK_EVERY == 0 else said_at
        if now - said_at > SAY_EVERY_NS:
            said_at = now
            producer.poll(0)
            parent.say(sent=sent)
    unsent = producer.flush(FLUSH_LIMIT_S)
    parent.say(fed=sent - unsent - failed)
    parent.wait()


if __name__ == "__main__":
    main()
