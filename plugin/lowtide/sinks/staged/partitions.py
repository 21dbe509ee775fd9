"""The partitions of a staged log in Kafka: read, cut, and what carriers have reported of them.

A carrier joins no group: partitions are assigned. What it reports are the group's offsets, each with the time up to
which records are visible as its metadata. An offset that is committed replaces any other, so one of a carrier that
slept could take back what a faster one has reported, after which the log was cut. Reports are transactions, then:
a carrier that claims the transactional id shuts out all before it, and reads what they have reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from lowtide.errors import LowtideError, ServiceUnavailable
from lowtide.sinks.errors import Overtaken
from lowtide.sinks.staged.contract import Progress, StagedRow
from lowtide.sinks.staged.encoder import MARK
from lowtide.sinks.staged.growth import LANES
from lowtide.wording import count_of

T = TypeVar("T")
READ_ROWS = 5_000
"""Rows taken at once; with `QUEUED_KBYTES` this bounds what a carrier is given in one piece."""
QUEUED_KBYTES = 32 << 10
ANSWER_LIMIT_S = 10.0
AGAIN_S = 0.1
CHANGING = frozenset({
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "_WAIT_COORD",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
})  # fmt: skip
"""Errors of a broker that is taking over from another one."""
FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A missing offset was needed.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # At a lane's end the last offsets may be transaction markers, which only show in this event.
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "queued.max.messages.kbytes": QUEUED_KBYTES,
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 10,
    "socket.nagle.disable": True,
    "reconnect.backoff.max.ms": 500,
    "log_level": 2,
}


PROMPT: dict[str, Any] = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 4, "reconnect.backoff.max.ms": 500}


class Piece(NamedTuple):
    """A part of a lane.

    Attributes:
        lane: The lane.
        rows: Its next rows, in order.
        mark_ms: Log time below which nothing follows these rows; None if nothing is said.
        mark_at: The mark's offset; 0 if nothing is said.
    """

    lane: int
    rows: list[StagedRow]
    mark_ms: int | None = None
    mark_at: int = 0


class ClaimLost(Exception):
    """Claim again: another carrier has claimed the reports since."""


class Gone(Exception):
    """See who has cut the log: a lane no longer has the records that come next.

    Attributes:
        lane: The lane.
        topic: True if the whole partition is gone.
    """

    def __init__(self, lane: int, *, topic: bool = False) -> None:
        super().__init__(f"lane {lane}")
        self.lane = lane
        self.topic = topic


def carrier_group(job: str, sink: str) -> str:
    """Return the name of the group whose offsets say from where on a staged log is needed; also the claim's id."""
    return f"lowtide.{job}.carrier.{sink}"


class Partitions:
    """The partitions of one staged log; belongs to one thread. All calls but `close` may raise ServiceUnavailable.

    Each is a lane of the log, which has as many as the job has lanes (`flow/plan/lane_partitions.py`).

    Args:
        settings: librdkafka's, of the way in.
        topic: The log's name.
        group: `carrier_group` of the sink.
        lanes: Number of lanes.
        limit_s: How long Kafka may take for an answer.

    Attributes:
        lanes: The lanes.
        next: By lane the offset before which everything has been read.
        name: What the log is, for errors.
        where: Where it is, for errors.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: str, group: str, lanes: int, limit_s: float = ANSWER_LIMIT_S
    ) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        self.lanes = range(lanes)
        self.next: dict[int, int] = {}
        self.name = f'topic "{topic}"'
        self.where = f"Kafka at {settings.get('bootstrap.servers', '')}"
        self._topic = topic
        self._group = group
        self._limit_s = limit_s
        quiet: dict[str, Any] = {"error_cb": lambda _: None}
        self._consumer: Any = Consumer({**settings, **SETTINGS, **quiet, "group.id": group})
        self._admin: Any = AdminClient({**settings, **quiet, "log_level": 0})
        self._claims = {**settings, **quiet, "log_level": 0, "transactional.id": group, **PROMPT}
        self._claimed: Any = None
        """The producer that may report; None before a claim, and after a report that failed."""

    # -- reports ---------------------------------------------------------------------------------------------------

    def claim(self) -> dict[int, Progress]:
        """Shut out earlier carriers, and return by lane what was reported last, as far as anything was.

        Raises:
            Overtaken: the job has more lanes by now.
        """
        from confluent_kafka import Producer

        producer: Any = Producer(self._claims)
        # With a broker known it begins at once; else librdkafka looks again only half a second later.
        with suppress(Exception):
            producer.list_topics(self._topic, self._limit_s)
        self._call(lambda: producer.init_transactions(self._limit_s))
        self._claimed = producer
        found = self._call(lambda: self._consumer.list_topics(self._topic, self._limit_s).topics.get(self._topic))
        self._refuse_outgrown(0 if found is None else len(found.partitions))
        return self.reported()

    def reported(self) -> dict[int, Progress]:
        """Return by lane what was reported last, as far as anything was."""
        partitions = self._partitions(dict.fromkeys(self.lanes, 0))
        answer = self._call(lambda: _without_errors(self._consumer.committed(partitions, self._limit_s)))
        return {
            each.partition: Progress(each.offset, int(each.metadata or 0) or None)
            for each in answer
            if each.offset >= 0
        }

    def report(self, progress: Mapping[int, Progress]) -> None:
        """Report how far lanes are: after a claim, and again after one if this fails (errors: ClaimLost)."""
        from confluent_kafka import KafkaException, TopicPartition

        partitions = [
            TopicPartition(self._topic, lane, each.needed, str(each.visible_ms or ""))
            for lane, each in progress.items()
        ]
        producer, self._claimed = self._claimed, None
        try:
            producer.begin_transaction()
            producer.send_offsets_to_transaction(partitions, self._consumer.consumer_group_metadata(), self._limit_s)
            producer.commit_transaction(self._limit_s)
        except KafkaException as caught:
            error = caught.args[0]
            if error.name() in FENCED:
                raise ClaimLost from caught
            raise self._unavailable(error) from caught
        self._claimed = producer

    # -- where it begins and ends ----------------------------------------------------------------------------------

    def begins(self) -> dict[int, int]:
        """Return by lane the offset at which the log begins."""
        return self._offsets(latest=False)

    def ends(self) -> dict[int, int]:
        """Return by lane the offset before which a reader gets everything now."""
        return self._offsets(latest=True)

    def cut(self, offsets: Mapping[int, int]) -> None:
        """Delete by lane the records below an offset."""
        partitions = self._partitions(offsets)

        def cut() -> None:
            for answer in self._admin.delete_records(partitions, request_timeout=self._limit_s).values():
                answer.result()

        self._call(cut)

    # -- reading ---------------------------------------------------------------------------------------------------

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets on, by lane."""
        self.next = {lane: offsets[lane] for lane in self.lanes}
        self._consumer.assign(self._partitions(self.next))

    def rest(self, lanes: Collection[int]) -> None:
        """Read none of these lanes until another call; of the others go on where they are."""
        going = {lane: offset for lane, offset in self.next.items() if lane not in lanes}
        self._consumer.assign(self._partitions(going))

    def read(self, wait_s: float) -> list[Piece]:
        """Return what is there, or comes first within a time: per lane in order (errors: Gone, Overtaken)."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return []
        pieces: list[Piece] = []
        rows: dict[int, list[StagedRow]] = {}
        for message in (first, *self._consumer.consume(READ_ROWS, 0)):
            lane = message.partition()
            if message.error() is not None:
                self._hear(message)
                continue
            self.next[lane] = message.offset() + 1
            value = message.value()
            if value is None:
                headers = dict(message.headers())
                if LANES in headers:
                    self._refuse_outgrown(int(headers[LANES]))
                    continue
                mark_ms = int(headers[MARK])
                pieces.append(Piece(lane, rows.pop(lane, []), mark_ms, message.offset()))
            else:
                row = StagedRow(message.offset(), message.timestamp()[1], message.key(), value)
                rows.setdefault(lane, []).append(row)
        return [*pieces, *(Piece(lane, found) for lane, found in rows.items())]

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _refuse_outgrown(self, lanes: int) -> None:
        """End a carrier of a life that had fewer lanes (errors: Overtaken)."""
        if lanes > len(self.lanes):
            own = count_of(len(self.lanes), "lane")
            raise Overtaken(
                f"the job has {lanes} lanes by now, and this carrier is of a life with {own}",
                where=self.where,
                way_out="nothing: a life with all lanes takes the records to their store",
            )

    def _hear(self, message: Any) -> None:
        """Note a lane's end; raise what reading on does not mend."""
        from confluent_kafka import KafkaError

        error, lane = message.error(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self.next[lane] = max(self.next[lane], message.offset())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise Gone(lane)
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            raise Gone(lane, topic=True)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED or error.fatal():
            raise self._unavailable(error)

    def _offsets(self, *, latest: bool) -> dict[int, int]:
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = dict.fromkeys(self._partitions(dict.fromkeys(self.lanes, 0)), spec)
        level = IsolationLevel.READ_COMMITTED

        def ask() -> dict[int, int]:
            answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=self._limit_s)
            return {partitions.partition: int(answer.result().offset) for partitions, answer in answers.items()}

        return self._call(ask)

    def _partitions(self, offsets: Mapping[int, int]) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._topic, lane, offset) for lane, offset in offsets.items()]

    def _call(self, ask: Callable[[], T]) -> T:
        """Return Kafka's answer; one that is in the middle of a change is asked again (errors: ServiceUnavailable)."""
        return patiently(ask, self._limit_s, self._unavailable)

    def _unavailable(self, error: Any) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"cannot carry the {self.name} on: {error.str()}",
            where=self.where,
            way_out="check that the broker runs, and that the job may read the topic, delete its records, commit "
            f'offsets of the group "{self._group}" and write with the transactional id of that name',
        )


def patiently(ask: Callable[[], T], limit_s: float, refused: Callable[[Any], LowtideError]) -> T:
    """Return Kafka's answer; one that is in the middle of a change is asked again.

    Args:
        ask: Asks once.
        limit_s: How long it may be changing.
        refused: Makes of a KafkaError the error to raise.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + limit_s
    while True:
        try:
            return ask()
        except KafkaException as caught:
            error = caught.args[0]
            if not (error.name() in CHANGING or error.retriable()) or time.monotonic() > deadline:
                raise refused(error) from caught
            time.sleep(AGAIN_S)


def _without_errors(partitions: list[Any]) -> list[Any]:
    """Return them, unless there is an error at one of them (errors: KafkaException)."""
    from confluent_kafka import KafkaException

    for each in partitions:
        if each.error is not None:
            raise KafkaException(each.error)
    return partitions
