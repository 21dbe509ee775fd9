"""The running count as a bare loop: librdkafka consumes, a dict counts, librdkafka produces.

Once a second it waits until all its output is in Kafka, then commits its position.
"""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from lowtide.connectors.sender import SETTINGS as PRODUCER
from lowtide_bench.reader import SETTINGS as CONSUMER

BATCH = 2_000
POLL_S = 0.1
COMMIT_EVERY_S = 1.0


def send(producer: Producer, topic: str, value: bytes, key: bytes) -> None:
    """Produce one message, waiting for room if there is none."""
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.01)
        else:
            return


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
    seen: dict[bytes, int] = {}
    committed_at = time.monotonic()
    while True:
        first = consumer.poll(POLL_S)
        for message in [] if first is None else [first, *consumer.consume(BATCH, 0)]:
            if message.error():
                continue
            key, value = message.key() or b"", message.value() or b""
            count = seen[key] = seen.get(key, 0) + 1
            send(producer, task["sink"], value[:24] + count.to_bytes(8, "little"), key)
        producer.poll(0)
        if time.monotonic() - committed_at > COMMIT_EVERY_S:
            committed_at = time.monotonic()
            producer.flush()
            reached = [place for place in consumer.position(places) if place.offset >= 0]
            if reached:
                consumer.commit(offsets=reached, asynchronous=True)


if __name__ == "__main__":
    main()
