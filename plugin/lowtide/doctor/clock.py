"""The broker's clock against this machine's."""

import time
import uuid
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.doctor.check import Answer, Surroundings
from lowtide.doctor.kafka import unreachable
from lowtide.errors import ServiceUnavailable

WARN_MS = 500
FAIL_MS = 60_000


def clock(surroundings: Surroundings) -> Answer:
    """They agree, as far as a record that the broker stamped can tell.

    The broker tells its time in no other way, so without leave to make a scratch topic nothing is measured.
    """
    kafka = surroundings.conf.kafka
    if unreachable(surroundings):
        return Answer("warn", "not compared, as no broker answers", "mend the broker first")
    if not surroundings.probe:
        if all(address.startswith(("127.", "localhost:")) for address in kafka.bootstrap.split(",")):
            return Answer("ok", "the broker is on this machine")
        return Answer("warn", "not compared with the broker's", "allow a scratch topic for it: lowtide doctor --probe")
    name = f"lowtide-doctor-{uuid.uuid4().hex[:12]}"
    surroundings.topics.create(name, config={"message.timestamp.type": "LogAppendTime"})
    try:
        skew_ms, within_ms = measure(kafka, name)
    finally:
        surroundings.topics.delete(name)
    found = f"the broker's is {abs(skew_ms)} ms {'ahead' if skew_ms > 0 else 'behind'} (known within {within_ms} ms)"
    excess = abs(skew_ms) - within_ms
    if excess > WARN_MS:
        way_out = "have both machines keep their clocks by NTP"
        return Answer("fail" if excess > FAIL_MS else "warn", found, way_out)
    return Answer("ok", found)


def measure(kafka: KafkaConf, topic: str) -> tuple[int, int]:
    """Write one record to a log-append topic: by how much the broker is ahead in ms, and how sure that is.

    Raises:
        ServiceUnavailable: the record did not come through in time.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    limit_s = kafka.reach_limit_ms / 1000
    quiet = {**librdkafka_settings(kafka), "log_level": 0}
    producer: Any = Producer({**quiet, "acks": "all"})
    consumer: Any = Consumer({**quiet, "group.id": topic, "enable.auto.commit": False})
    try:
        # The first record opens connections, which takes time; the second one is measured.
        producer.produce(topic, b"")
        producer.flush(limit_s)
        before = time.time()
        producer.produce(topic, b"")
        producer.flush(limit_s)
        after = time.time()
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        messages = consumer.consume(2, limit_s)
    finally:
        consumer.close()
    if len(messages) != 2 or any(message.error() for message in messages):
        raise ServiceUnavailable(
            f"a record did not come through within {limit_s:g} s",
            where=kafka.bootstrap,
            way_out="look at the broker's log",
        )
    _, stamped_ms = messages[1].timestamp()
    return round(stamped_ms - (before + after) * 500), round((after - before) * 500) + 1
