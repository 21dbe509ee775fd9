"""Reads the ends of partitions; the only module here that uses Kafka's clients."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.service.fronts.tail_state import NO_OFFSET, RECORD, Tail

ASK_WITHIN_S = 0.5
READ_WITHIN_S = 0.1
MAX_READ_AT_ONCE = 64
COMMON: dict[str, Any] = {
    "group.id": "lowtide-tails",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
}
"""The name of a group that is never joined; librdkafka requires one."""
READING: dict[str, Any] = {
    # By default a reader begins at the end if the log does not have its offset: that would look like an empty tail.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # An empty answer shows the end; by default the broker holds it back for half a second.
    "fetch.wait.max.ms": 1,
    "fetch.queue.backoff.ms": 1,
    "fetch.message.max.bytes": 65536,
}


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The reason for a missing answer.

    Attributes:
        reason: Kafka's words.
        gone: True if the topic or the partition does not exist.
    """

    reason: str
    gone: bool = False


class TailReader:
    """Two clients: one asks, one reads (a connection is made on use); to be used by one thread."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from confluent_kafka import Consumer

        self._way_in = {**settings, "log_level": 0, "error_cb": _ignore}
        settings = {**settings, **COMMON, "error_cb": _ignore}
        self._asking: Any = Consumer(settings)
        self._settings = settings | READING
        # Only topics that another job writes need one.
        self._asking_all: Any = None
        # Sources written without transactions need no reader.
        self._reading: Any = None
        self._admin: Any = None

    def close(self) -> None:
        """Close both."""
        self._asking.close()
        if self._asking_all is not None:
            self._asking_all.close()
        if self._reading is not None:
            self._reading.close()

    def last_stable_offsets(self, tails: Sequence[Tail], within_s: float) -> list[int | Unanswered]:
        """Ask for the last stable offsets, in one request per broker.

        If one broker does not answer within `within_s`, there is no answer about any of these.
        """
        return self._ends_asked(self._asking, tails, within_s)

    def high_watermarks(self, tails: Sequence[Tail], within_s: float) -> list[int | Unanswered]:
        """Ask for the ends of all that is written, committed or not; see `last_stable_offsets`."""
        from confluent_kafka import Consumer

        if self._asking_all is None:
            self._asking_all = Consumer({**self._settings, "isolation.level": "read_uncommitted"})
        return self._ends_asked(self._asking_all, tails, within_s)

    def _ends_asked(self, client: Any, tails: Sequence[Tail], within_s: float) -> list[int | Unanswered]:
        """Ask a client of one isolation level.

        A call of `offsets_for_times` at the time "latest" takes a third of the admin client's CPU time. Unlike
        `get_watermark_offsets` it does not ask for the other end too, nor for one partition at a time.
        """
        from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

        # Two sources may read one topic, and a broker refuses a partition twice in one request.
        partitions = dict.fromkeys((tail.topic, tail.partition) for tail in tails)
        question = [TopicPartition(topic, partition, OFFSET_END) for topic, partition in partitions]
        try:
            answer = client.offsets_for_times(question, timeout=within_s)
        except KafkaException as error:
            return [_unanswered(error.args[0])] * len(tails)
        answers = {(found.topic, found.partition): found for found in answer}
        return [_offset(answers[tail.topic, tail.partition]) for tail in tails]

    def ends(self, tails: Sequence[Tail]) -> list[int | None]:
        """Read from each tail's offset, which must be below its LSO.

        Returns:
            For each its end, `RECORD` if a record came first, `NO_OFFSET` if its log does not have the offset; None if
            nothing came in time.
        """
        ends: dict[int, int | None] = {}
        rest = list(tails)
        while rest:
            now: dict[tuple[str, int], Tail] = {}
            for tail in rest:
                if len(now) < MAX_READ_AT_ONCE:
                    now.setdefault((tail.topic, tail.partition), tail)
            found = self._ends(list(now.values()))
            ends |= {tail.front: found.get(partition) for partition, tail in now.items()}
            rest = [tail for tail in rest if tail.front not in ends]
        return [ends[tail.front] for tail in tails]

    def leaders(self, topic: str) -> dict[int, int] | Unanswered:
        """Return the topic's partitions, each with the number of its leading broker, -1 for none."""
        from confluent_kafka import KafkaException

        # This only keeps librdkafka's queue of events empty.
        self._asking.poll(0)
        try:
            described = self._asking.list_topics(topic, timeout=ASK_WITHIN_S).topics[topic]
        except KafkaException as error:
            return _unanswered(error.args[0])
        if described.error is not None:
            return _unanswered(described.error)
        return {number: partition.leader for number, partition in described.partitions.items()}

    def topic_id(self, topic: str) -> str | None:
        """Return the cluster's permanent id of a topic; None if unknown."""
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(self._way_in)
        try:
            answer = self._admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_WITHIN_S)
            return str(answer[topic].result().topic_id)
        except KafkaException:
            return None

    def _ends(self, tails: Sequence[Tail]) -> dict[tuple[str, int], int | None]:
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        if self._reading is None:
            self._reading = Consumer(self._settings)
        partitions = [TopicPartition(tail.topic, tail.partition, tail.offset) for tail in tails]
        ends: dict[tuple[str, int], int | None] = {}
        deadline = time.monotonic() + READ_WITHIN_S
        self._reading.assign(partitions)
        while len(ends) < len(tails) and (rest_s := deadline - time.monotonic()) > 0:
            message = self._reading.poll(rest_s)
            if message is None:
                continue
            partition, error = (message.topic(), message.partition()), message.error()
            if partition in ends:
                continue
            if error is None:
                ends[partition] = RECORD
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[partition] = message.offset()
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                ends[partition] = NO_OFFSET
        self._reading.unassign()
        return ends


def _offset(answer: Any) -> int | Unanswered:
    if answer.error is not None:
        return _unanswered(answer.error)
    return int(answer.offset) if answer.offset >= 0 else Unanswered("Kafka gave no offset")


def _unanswered(error: Any) -> Unanswered:
    from confluent_kafka import KafkaError

    gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
    return Unanswered(str(error.str()), error.code() in gone)


def _ignore(_: object) -> None:
    """Ignore a connection's error: it shows as a missing answer."""
