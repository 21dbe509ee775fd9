"""The running count, or another flow, as a bare loop: librdkafka consumes, dicts keep state, librdkafka produces.

Once a second it waits until all its output is in Kafka, then commits its position.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from lowtide.connectors.sender import SETTINGS as PRODUCER
from lowtide_bench.peers.programs.steps import STEPS, Item
from lowtide_bench.reader import SETTINGS as CONSUMER

BATCH = 2_000
POLL_S = 0.1
COMMIT_EVERY_S = 1.0
Results = Iterator[tuple[bytes, bytes]]
"""Keys and values."""


def send(producer: Producer, topic: str, value: bytes, key: bytes) -> None:
    """Produce one message, waiting for room if there is none."""
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def running_count() -> Callable[[Iterable[Any]], Results]:
    """Return the function that counts messages by key."""
    seen: dict[bytes, int] = {}

    def counted(messages: Iterable[Any]) -> Results:
        for message in messages:
            if message.error():
                continue
            key, value = message.key() or b"", message.value() or b""
            count = seen[key] = seen.get(key, 0) + 1
            yield key, value[:24] + count.to_bytes(8, "little")

    return counted


def of_documents(flow: str) -> Callable[[Iterable[Any]], Results]:
    """Return the function that takes messages through the steps of a flow."""
    split, *steps = STEPS[flow]
    states: list[dict[str, Any]] = [{} for _ in steps]

    def taken(messages: Iterable[Any]) -> Results:
        for message in messages:
            if message.error():
                continue
            items = split(message.value() or b"")
            for step, state in zip(steps, states, strict=True):
                following: list[Item] = []
                for item in items:
                    state[item[0]], made = step(state.get(item[0]), item)
                    following += made
                items = following
            for word, value in items:
                yield word.encode(), value

    return taken


def main() -> None:
    """Run until killed."""
    task: dict[str, Any] = json.loads(sys.argv[1])
    consumer = Consumer({"bootstrap.servers": task["kafka"], **CONSUMER, "group.id": task["source"]})
    places = [TopicPartition(task["source"], partition) for partition in range(task["partitions"])]
    for place in consumer.committed(places):
        place.offset = max(place.offset, 0)
        consumer.incremental_assign([place])
    # It lingers for 1 ms, because no transaction gathers its records.
    producer = Producer({"bootstrap.servers": task["kafka"], **PRODUCER, "linger.ms": 1})
    results = of_documents(task["flow"]) if task["flow"] in STEPS else running_count()
    committed_at = time.monotonic()
    while True:
        first = consumer.poll(POLL_S)
        for key, value in results([] if first is None else [first, *consumer.consume(BATCH, 0)]):
            send(producer, task["sink"], value, key)
        producer.poll(0)
        if time.monotonic() - committed_at > COMMIT_EVERY_S:
            committed_at = time.monotonic()
            producer.flush()
            reached = [place for place in consumer.position(places) if place.offset >= 0]
            if reached:
                consumer.commit(offsets=reached, asynchronous=True)


if __name__ == "__main__":
    main()
