"""A job's *lasts topic*: what is durable per lane, written in the very transactions that deliver (R13).

What its records look like stands in `lasts_records`; how it is opened and read, here.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.lasts_records import (
    Durable,
    LaneName,
    LastsUnreadable,
    durable_of,
    forget_records,
    records_of,
)
from lowtide.errors import LifeEnded, ServiceUnavailable
from lowtide.fronts.floors import Floors
from lowtide.kafka_access import librdkafka_settings
from lowtide.topics import TopicExists, Topics
from lowtide_tracker import Floor

__all__ = [
    "Durable",
    "LaneName",
    "LastsLost",
    "LastsUnreadable",
    "forget_records",
    "keep_floors",
    "open_lasts",
    "read_lasts",
    "records_of",
    "topic_of",
]

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # A segment's age goes by its records' timestamps.
    "message.timestamp.type": "LogAppendTime",
    # Only segments that are full or old are compacted, and a life begins with reading all that is left.
    "segment.bytes": str(4 << 20),
    "segment.ms": str(600_000),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(3_600_000),
    "delete.retention.ms": str(3_600_000),
    # A replica that missed commits must not become the one that tells what was committed.
    "unclean.leader.election.enable": "false",
}
READ_RECORDS = 10_000
"""Taken from the client's queue at once."""
READ_S = 0.2
SAY_EVERY_S = 5.0
_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,100}")


class LastsLost(LifeEnded):
    """Decide what becomes of the job: nobody knows any more what it has delivered."""


def topic_of(job: str, generation: int = 0) -> str:
    """The name of a job's lasts topic; different for different jobs, and legal whatever the job is called.

    Each output generation has one of its own: what it delivers was delivered before.

    Kafka allows no two topics whose names differ in "." and "_" only, so a name with a dot is told apart by its hash.
    """
    behind = f"-{generation}" if generation else ""
    if _LEGAL.fullmatch(job):
        return f"lowtide.{job}.last{behind}"
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:100]
    return f"lowtide.{readable}.last-{hashlib.sha256(job.encode()).hexdigest()[:32]}{behind}"


def open_lasts(kafka: KafkaConf, job: str, known_id: str | None, generation: int = 0) -> str:
    """See that the job's lasts topic is there and the one it was; make it at the job's first start.

    Args:
        kafka: The way in.
        job: The job's name.
        known_id: What an earlier call returned; None if the job has never had a life in this generation.
        generation: Of its output.

    Returns:
        The id that the cluster gave the topic; one that is made anew under the same name has another.

    Raises:
        LastsLost: The topic is missing, is another one, or is not compacted.
        ServiceUnavailable: No broker answered in time.
        TopicRefused: Kafka does not allow the topic to be made.
    """
    topic = topic_of(job, generation)
    found = _topic_id(kafka, topic)
    if found is None and known_id is None:
        # Where another start of the job has made it meanwhile, which of the two goes on is for ZooKeeper to say.
        with suppress(TopicExists):
            Topics(kafka).create(topic, config=TOPIC_CONFIG)
        found = _topic_id(kafka, topic)
    if found is None:
        raise _lost(kafka, topic, "is gone")
    if known_id is not None and found != known_id:
        raise _lost(kafka, topic, f"is not the one it was: its id is {found}, not {known_id}")
    described = Topics(kafka).describe(topic)
    if described.cleanup != "compact":
        raise _lost(kafka, topic, f"has cleanup.policy={described.cleanup} and may have forgotten records")
    if described.partitions != 1:
        raise _lost(kafka, topic, f"has {described.partitions} partitions instead of 1")
    return found


def keep_floors(kafka: KafkaConf, topic: str, floors: Iterable[Floor], incarnation: int, limit_s: float) -> None:
    """Write floors into a lasts topic that is new: what they were durable in before is read no more.

    Raises:
        ServiceUnavailable: Kafka did not take them in time.
    """
    from confluent_kafka import Producer

    settings: dict[str, Any] = {**librdkafka_settings(kafka), "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    # Of several for one offset the last written would count, whichever is the larger.
    for key, value in records_of(LaneName(0, "", 0), None, Floors(floors), incarnation):
        producer.produce(topic, value, key)
        producer.poll(0)
    left = producer.flush(limit_s)
    if left:
        raise ServiceUnavailable(
            f'Kafka did not take {left} records for topic "{topic}" within {limit_s:g} s',
            where=f"Kafka at {kafka.bootstrap}",
            way_out="see that the broker runs, then start the job again",
        )


def read_lasts(kafka: KafkaConf, topic: str, limit_s: float, say: Callable[[str], None] = lambda _: None) -> Durable:
    """Read all that was committed to a lasts topic before this call; O(records that compaction has left).

    It is the truth only after every transactional id that may have been used has been claimed: then no transaction is
    open, and none of an earlier life can be committed any more (W10).

    Args:
        kafka: The way in.
        topic: The lasts topic.
        limit_s: How long it may take.
        say: Told how far it is, every 5 s.

    Raises:
        LastsLost: There is no such topic.
        LastsUnreadable: Another version wrote it.
        ServiceUnavailable: It took longer, because Kafka does not answer or a transaction is still open.
    """
    from confluent_kafka import Consumer, TopicPartition

    deadline = time.monotonic() + limit_s
    end = _end_offset(kafka, topic, limit_s)
    # fmt: off
    consumer = Consumer({
        **librdkafka_settings(kafka), "group.id": "lowtide", "enable.auto.commit": False, "log_level": 0,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
    })
    # fmt: on
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return durable_of(_newest(consumer, kafka, topic, end=end, deadline=deadline, say=say), topic)
    finally:
        consumer.close()


def _newest(
    consumer: Any, kafka: KafkaConf, topic: str, *, end: int, deadline: float, say: Callable[[str], None]
) -> dict[bytes, bytes]:
    """The newest value under each key, read up to offset `end`."""
    from confluent_kafka import KafkaError

    table: dict[bytes, bytes] = {}
    position, say_at = 0, time.monotonic() + SAY_EVERY_S
    while position < end:
        now = time.monotonic()
        if now > deadline:
            raise ServiceUnavailable(
                f'the topic "{topic}" could not be read to its end in time: it ends at offset {end}, and offset '
                f"{position} is not to be had",
                where=f"Kafka at {kafka.bootstrap}",
                way_out="see that the broker runs; if it does, a transaction on the topic is still open: wait until "
                "Kafka ends it, 15 min at most, and start the job again",
            )
        if now > say_at:
            say(f'read {position} of {end} offsets of topic "{topic}"')
            say_at = now + SAY_EVERY_S
        for message in consumer.consume(READ_RECORDS, min(READ_S, deadline - now)):
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                position = message.offset() + 1
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = value
            elif error.code() == KafkaError._PARTITION_EOF:
                # What lies behind the last record, transactions' markers, is seen in this offset alone.
                position = message.offset()
            elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                raise _lost(kafka, topic, "is gone")
    return table


def _topic_id(kafka: KafkaConf, topic: str) -> str | None:
    """The topic's id, None if there is no such topic."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    limit_s = kafka.reach_limit_ms / 1000
    client: Any = AdminClient({**librdkafka_settings(kafka), "log_level": 0})
    try:
        answer = client.describe_topics(TopicCollection([topic]), request_timeout=limit_s)
        return str(answer[topic].result().topic_id)
    except KafkaException as caught:
        if caught.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise _unanswered(kafka, topic, limit_s, caught) from caught


def _end_offset(kafka: KafkaConf, topic: str, limit_s: float) -> int:
    """The offset behind the last one there is, be it committed or not."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

    deadline = time.monotonic() + limit_s
    client: Any = AdminClient({**librdkafka_settings(kafka), "log_level": 0})
    place, spec = TopicPartition(topic, 0), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    while True:
        if _topic_id(kafka, topic) is None:
            raise _lost(kafka, topic, "is gone")
        try:
            # fmt: off
            answer = client.list_offsets({place: spec}, request_timeout=max(0.1, deadline - time.monotonic()),
                                         isolation_level=IsolationLevel.READ_UNCOMMITTED)
            # fmt: on
            return int(answer[place].result().offset)
        except KafkaException as caught:
            # The partition may be between two leaders.
            if time.monotonic() + READ_S > deadline:
                raise _unanswered(kafka, topic, limit_s, caught) from caught
            time.sleep(READ_S)


def _unanswered(kafka: KafkaConf, topic: str, limit_s: float, caught: Any) -> ServiceUnavailable:
    return ServiceUnavailable(
        f'Kafka did not answer about topic "{topic}" within {limit_s:g} s: {caught.args[0].str()}',
        where=f"Kafka at {kafka.bootstrap} ([kafka].bootstrap)",
        way_out="see that the broker runs, then start the job again",
    )


def _lost(kafka: KafkaConf, topic: str, what: str) -> LastsLost:
    return LastsLost(
        f'the topic "{topic}", which says what the job has delivered, {what}',
        where=f"Kafka at {kafka.bootstrap}",
        way_out="to go on would deliver everything again: restore the topic, or run the flow under another name and "
        "with new output topics",
    )
