"""A job's *lasts topic*: what is durable per lane, written in the very transactions that deliver (R13).

This module opens and reads it. `lasts_records` has the format of its records, `floor_archive` moves old ones away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import TopicExists, Topics
from lowtide.core.fronts.floors import Steps
from lowtide.errors import ServiceUnavailable
from lowtide.flow.plan.own_topics import name_beside
from lowtide.sinks.errors import LastsLost
from lowtide.sinks.kafka.lasts_records import (
    Archived,
    Durable,
    LastsUnreadable,
    archived_record,
    durable_of,
    floor_records,
    owner_record,
    records_of,
)
from lowtide.wording import count_of
from lowtide_tracker import Floor

__all__ = [
    "Durable",
    "LastsLost",
    "LastsUnreadable",
    "keep_floors",
    "name_beside",
    "newest",
    "open_lasts",
    "own",
    "read_lasts",
    "records_of",
    "topic_id",
    "topic_of",
    "write",
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
    # Readers are done long before; tombstones need not stay longer.
    "delete.retention.ms": str(600_000),
    # A replica that missed commits must not answer what was committed.
    "unclean.leader.election.enable": "false",
}
READ_RECORDS = 10_000
"""Taken from the client's queue at once."""
QUEUED_RECORDS = 50_000
"""Written ahead of what the broker has taken."""
READ_S = 0.2
END_WAIT_MS = 10
FIRST_ANSWER_S = 2.0
"""Waited for the first answer about a topic, and twice as long each time: a request may go unanswered."""
T = TypeVar("T")

GONE_S = 3.0
"""Time for which brokers must deny a topic that was made: one that has just started, or a topic that was just made,
takes a moment until the controller has told it."""
GONE_POLL_S = 0.1
SAY_EVERY_S = 5.0


def topic_of(job: str, generation: int = 0) -> str:
    """The name of a job's lasts topic.

    Each output generation has its own: its deliveries repeat those before.
    """
    return name_beside(job, "last", f"-{generation}" if generation else "")


def open_lasts(kafka: KafkaConf, job: str, known_id: str | None, generation: int = 0) -> str:
    """See that the job's lasts topic is there and the one it was; make it at the job's first start.

    Args:
        kafka: The way in.
        job: The job's name.
        known_id: What an earlier call returned; None if the job has never had a life in this generation.
        generation: Of its output.

    Returns:
        The id that the cluster gave the topic; one that is recreated under the same name has another.

    Raises:
        LastsLost: The topic is missing, is another one, or is not compacted.
        ServiceUnavailable: No broker answered in time.
        TopicRefused: Kafka does not allow the topic to be made.
    """
    topic = topic_of(job, generation)
    settings, limit_s = librdkafka_settings(kafka), kafka.reach_limit_ms / 1000
    if known_id is None and topic_id(settings, topic, limit_s) is None:
        # If another start of the job has made it meanwhile, ZooKeeper decides which of the two continues.
        with suppress(TopicExists):
            Topics(kafka).create(topic, config=TOPIC_CONFIG)
    found = made_id(settings, topic, limit_s)
    if found is None:
        raise _lost(settings, topic, "is gone")
    if known_id is not None and found != known_id:
        raise _lost(settings, topic, f"has been replaced by another: its id is {found}, not {known_id}")
    described = Topics(kafka).describe(topic)
    if described.cleanup != "compact":
        raise _lost(settings, topic, f"has cleanup.policy={described.cleanup} and may have forgotten records")
    if described.partitions != 1:
        raise _lost(settings, topic, f"has {count_of(described.partitions, 'partition')} instead of 1")
    return found


def keep_floors(
    kafka: KafkaConf,
    topic: str,
    floors: Iterable[Floor],
    incarnation: int,
    limit_s: float,
    archived: Archived | None = None,
) -> None:
    """Write floors into a lasts topic that is new, and where more are: what they were durable in is read no more.

    Raises:
        ServiceUnavailable: Kafka did not take them in time.
    """
    records: list[tuple[bytes, bytes | None]] = [*floor_records(Steps(floors), incarnation)]
    if archived is not None:
        records.append(archived_record(archived, incarnation))
    write(librdkafka_settings(kafka), topic, records, limit_s)


def own(kafka: KafkaConf, topic: str, job_id: str, limit_s: float) -> None:
    """Say in a lasts topic whose it is (errors: ServiceUnavailable)."""
    write(librdkafka_settings(kafka), topic, [owner_record(job_id)], limit_s)


def write(
    settings: Mapping[str, str], topic: str, records: Iterable[tuple[bytes, bytes | None]], limit_s: float
) -> None:
    """Write records into partition 0, and wait until all are durable.

    Args:
        settings: librdkafka's, of the way in.
        topic: Where to.
        records: Keys and values; None takes back what was said under a key.
        limit_s: How long Kafka may take for one of them.

    Raises:
        ServiceUnavailable: Kafka did not take all of them.
    """
    write_messages(settings, topic, ({"key": key, "value": value, "partition": 0} for key, value in records), limit_s)


def write_messages(
    settings: Mapping[str, str], topic: str, messages: Iterable[Mapping[str, Any]], limit_s: float
) -> None:
    """Write messages outside transactions, and wait until all are durable.

    Args:
        settings: librdkafka's, of the way in.
        topic: Where to.
        messages: What `Producer.produce` takes by name, for each of them.
        limit_s: How long Kafka may take for one of them.

    Raises:
        ServiceUnavailable: Kafka did not take all of them.
    """
    from confluent_kafka import Producer

    lost: list[str] = []

    def failed(error: Any, _: object) -> None:
        if error is not None:
            lost.append(str(error.str()))

    limit_ms = str(int(limit_s * 1000))
    producer = Producer(
        {
            **settings,
            "enable.idempotence": True,
            "acks": "all",
            "log_level": 0,
            "message.timeout.ms": limit_ms,
            "delivery.report.only.error": True,
        }
    )
    for message in messages:
        producer.produce(topic, **message, on_delivery=failed)
        producer.poll(0)
        while len(producer) > QUEUED_RECORDS:
            producer.poll(READ_S)
    left = producer.flush(limit_s + 1)
    if left or lost:
        raise ServiceUnavailable(
            f'Kafka did not accept {left + len(lost)} records for topic "{topic}" within {limit_s:g} s'
            + (f": {lost[0]}" if lost else ""),
            where=f"Kafka at {settings['bootstrap.servers']}",
            way_out="check that the broker runs, then start the job again",
        )


def read_lasts(kafka: KafkaConf, topic: str, limit_s: float, say: Callable[[str], None] = lambda _: None) -> Durable:
    """Read all that was committed to a lasts topic before this call; O(records that compaction has left).

    The result is complete only after every transactional id that may have been used has been claimed: then no
    transaction is open, and none of an earlier life can commit (W10).

    Args:
        kafka: The way in.
        topic: The lasts topic.
        limit_s: How long Kafka may return nothing. However long the topic is, it is read to its end.
        say: Called with the progress, every 5 s.

    Raises:
        LastsLost: There is no such topic.
        LastsUnreadable: Another version wrote it.
        ServiceUnavailable: Kafka does not answer, or a transaction is still open.
    """
    settings = librdkafka_settings(kafka)
    end = _end_offset(settings, topic, limit_s, committed=False)
    return durable_of(newest(settings, topic, limit_s, end=end, say=say), topic)


def newest(
    settings: Mapping[str, str],
    topic: str,
    limit_s: float,
    *,
    end: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[bytes, bytes]:
    """The newest committed value under each key of a topic's partition 0; 3 us of CPU for each record.

    Args:
        settings: librdkafka's, of the way in.
        topic: The topic.
        limit_s: How long Kafka may return nothing.
        end: Read up to this offset; by default up to the first transaction that is open when this is called. A topic
            that is always written never ends: Kafka reports an end only to a reader that waits there.
        say: Called with the progress, every 5 s.

    Raises:
        LastsLost: There is no such topic.
        ServiceUnavailable: Kafka returned nothing for this time.
    """
    from confluent_kafka import Consumer, TopicPartition

    if end is None:
        end = _end_offset(settings, topic, limit_s, committed=True)
    # fmt: off
    consumer = Consumer({
        **settings, "group.id": "lowtide", "enable.auto.commit": False, "log_level": 0,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        # The end shows in an answer without records, which the broker holds back for half a second by default.
        "fetch.wait.max.ms": END_WAIT_MS, "fetch.queue.backoff.ms": 1,
    })
    # fmt: on
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return _newest(consumer, settings, topic, end=end, limit_s=limit_s, say=say)
    finally:
        consumer.close()


def _newest(
    consumer: Any,
    settings: Mapping[str, str],
    topic: str,
    *,
    end: int,
    limit_s: float,
    say: Callable[[str], None],
) -> dict[bytes, bytes]:
    from confluent_kafka import KafkaError

    unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    table: dict[bytes, bytes] = {}
    now = time.monotonic()
    position, say_at, deadline = 0, now + SAY_EVERY_S, now + limit_s
    while position < end:
        now, before = time.monotonic(), position
        if now > deadline:
            raise ServiceUnavailable(
                f'cannot read the topic "{topic}" to its end, offset {end}: Kafka has not returned offset {position} '
                f"for {limit_s:g} s",
                where=f"Kafka at {settings['bootstrap.servers']}",
                way_out="check that the broker runs; if it does, a transaction on the topic is still open: wait until "
                "Kafka ends it, 15 min at most, and start the job again",
            )
        if now > say_at:
            say(f'read {position} of {end} offsets of topic "{topic}"')
            say_at = now + SAY_EVERY_S
        # Waited for the first one alone: for more than are there, the client waits until its time is over.
        came = consumer.consume(1, min(READ_S, limit_s))
        for message in [*came, *consumer.consume(READ_RECORDS, 0)] if came else []:
            error = message.error()
            if error is None:
                _put(table, message.key(), message.value())
                position = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                # Transaction markers after the last record show in this offset alone.
                position = message.offset()
            elif error.code() in unknown and made_id(settings, topic, limit_s) is None:
                raise _lost(settings, topic, "is gone")
        if position > before:
            deadline = time.monotonic() + limit_s
    return table


def _put(table: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def topic_id(settings: Mapping[str, str], topic: str, limit_s: float) -> str | None:
    """Return the topic's id in the cluster, None if there is no such topic (errors: ServiceUnavailable)."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    client: Any = AdminClient({**settings, "log_level": 0})
    deadline, wait_s = time.monotonic() + limit_s, FIRST_ANSWER_S
    while True:
        wait_s = max(0.1, min(wait_s, deadline - time.monotonic()))
        try:
            answer = client.describe_topics(TopicCollection([topic]), request_timeout=wait_s)
            return str(answer[topic].result().topic_id)
        except KafkaException as caught:
            code = caught.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            if code != KafkaError._TIMED_OUT or time.monotonic() >= deadline:
                raise _unanswered(settings, topic, limit_s, caught) from caught
            wait_s *= 2


def made_id(settings: Mapping[str, str], topic: str, limit_s: float, denied_s: float = GONE_S) -> str | None:
    """Return the id of a topic that was made; None once brokers have denied it for `denied_s`.

    Raises:
        ServiceUnavailable: no broker answered within `limit_s`.
    """
    return asked_again(lambda: topic_id(settings, topic, limit_s), denied_s)


def asked_again(ask: Callable[[], T | None], denied_s: float) -> T | None:
    """Return what brokers say of a topic that was made; None once they have denied it for `denied_s`."""
    until = time.monotonic() + denied_s
    while (found := ask()) is None and time.monotonic() < until:
        time.sleep(GONE_POLL_S)
    return found


def _end_offset(settings: Mapping[str, str], topic: str, limit_s: float, *, committed: bool) -> int:
    """Return the offset after the last one; if `committed`, that of the first open transaction."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

    deadline = time.monotonic() + limit_s
    client: Any = AdminClient({**settings, "log_level": 0})
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    partition, spec = TopicPartition(topic, 0), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    while True:
        if made_id(settings, topic, limit_s) is None:
            raise _lost(settings, topic, "is gone")
        try:
            # fmt: off
            answer = client.list_offsets({partition: spec}, request_timeout=max(0.1, deadline - time.monotonic()),
                                         isolation_level=isolation)
            # fmt: on
            return int(answer[partition].result().offset)
        except KafkaException as caught:
            # The partition may be between two leaders.
            if time.monotonic() + READ_S > deadline:
                raise _unanswered(settings, topic, limit_s, caught) from caught
            time.sleep(READ_S)


def _unanswered(settings: Mapping[str, str], topic: str, limit_s: float, caught: Any) -> ServiceUnavailable:
    return ServiceUnavailable(
        f'Kafka did not answer about topic "{topic}" within {limit_s:g} s: {caught.args[0].str()}',
        where=f"Kafka at {settings['bootstrap.servers']} ([kafka].bootstrap_servers)",
        way_out="check that the broker runs, then start the job again",
    )


def _lost(settings: Mapping[str, str], topic: str, what: str) -> LastsLost:
    return LastsLost(
        f'the topic "{topic}", which says what the job has delivered, {what}',
        where=f"Kafka at {settings['bootstrap.servers']}",
        way_out="starting without it would deliver everything again: restore the topic, or run the flow under another "
        "name and with new output topics",
    )
