"""The answers of one call in Kafka: what a life reads as it begins, and what none will need any more.

Answers are delivered once and in the order of their records, so a partition is sorted by order key: places are found
by halving. More lanes change nothing of that, as what they write lies above all that the lanes before had. Kafka's own
search by time would meet the markers of transactions, which have the broker's time: where a job reads an old log, each
of them is later than all answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from lowtide.core.operators.order.order import OrderKey, tick_of
from lowtide.core.operators.questions import Answer
from lowtide.errors import ServiceUnavailable
from lowtide.flow.plan.lane_partitions import partitions_before
from lowtide.sinks.answers.encoder import answer_of
from lowtide.sinks.errors import LastsLost
from lowtide.sinks.staged.partitions import SETTINGS, patiently

T = TypeVar("T")
BATCH = 5_000
GROUP = "lowtide"
"""librdkafka wants one; nobody joins it."""
# At a lane's end a look at another place would wait for this one.
OWN: dict[str, Any] = {"group.id": GROUP, "fetch.wait.max.ms": 10, "error_cb": lambda _: None}


def read_answers(
    settings: Mapping[str, Any],
    topic: str,
    lasts: Mapping[int, OrderKey],
    tick: int,
    limit_s: float,
    counts: Sequence[int] = (),
) -> tuple[dict[bytes, Answer], bytes | None]:
    """Return all answers from a tick on, by the packed order key of their record; 4 us of CPU for each.

    With them comes the order key from which on none is missing in any lane; None if there are none. Of a job that has
    grown there are answers of other lanes among them, as a lane's may be in the partition of the one that it was in.

    Args:
        settings: librdkafka's, of the way in.
        topic: The topic.
        lasts: By lane the order key up to which it is delivered.
        tick: The tick.
        limit_s: How long Kafka may give nothing.
        counts: The numbers of lanes that the job has had, the current one last; none if a lane is a partition.

    Raises:
        LastsLost: the last answer of a lane is not there.
        ServiceUnavailable: Kafka does not answer, or a transaction is still open.
    """
    wanted = {lane: key.packed() for lane, key in lasts.items() if key.tick >= tick}
    if not wanted:
        return {}, None
    places = {lane: partitions_before(counts, lane) if counts else [lane] for lane in wanted}
    with _Log(settings, topic, limit_s) as log:
        starts, ends = log.bounds(sorted({each for some in places.values() for each in some}), undecided=True)
        found: dict[bytes, Answer] = {}
        firsts: dict[int, bytes] = {}
        for message in log.read(log.places(starts, ends, tick), ends):
            at, found[at] = answer_of(message)
            firsts.setdefault(message.partition(), at)
    for lane, last in wanted.items():
        if last not in found:
            raise LastsLost(
                f'the topic "{topic}" lacks the last answer that was kept, of tick {tick_of(last)}',
                where=f"{log.where}, partition {' or '.join(map(str, places[lane]))}",
                way_out="restore the topic; or give the job another name: a new job asks about everything again",
            )
    # One that a growth has made, and nobody has cut, lacks nothing before its first: it was not there.
    whole = {each for each in firsts if counts and each >= counts[0] and not starts[each]}
    since = [first for each, first in firsts.items() if each not in whole] or firsts.values()
    return found, max(since, default=None)


def cut_answers(settings: Mapping[str, Any], topic: str, lanes: int, tick: int, limit_s: float) -> dict[int, int]:
    """Delete the answers below a tick; return by lane the offset at which the log begins now.

    Args:
        settings: librdkafka's, of the way in.
        topic: The topic.
        lanes: Number of lanes.
        tick: The tick.
        limit_s: How long Kafka may take for an answer.

    Raises:
        ServiceUnavailable: Kafka does not answer.
    """
    with _Log(settings, topic, limit_s) as log:
        return log.cut(log.places(*log.bounds(range(lanes)), tick))


def clear_answers(settings: Mapping[str, Any], topic: str, lanes: int, limit_s: float) -> None:
    """Delete all answers that are there; arguments and errors as of `cut_answers`."""
    with _Log(settings, topic, limit_s) as log:
        log.cut(log.bounds(range(lanes), undecided=True)[1])


class _Log:
    """A consumer of one topic, and what asks about it; all methods raise ServiceUnavailable.

    Attributes:
        where: Kafka's address, for errors.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, limit_s: float) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        self._topic = topic
        self._limit_s = limit_s
        self.where = f"Kafka at {settings.get('bootstrap.servers', '')}"
        self._consumer: Any = Consumer({**settings, **SETTINGS, **OWN})
        self._admin: Any = AdminClient({**settings, "log_level": 0, "error_cb": OWN["error_cb"]})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.close()

    def bounds(self, lanes: Iterable[int], *, undecided: bool = False) -> tuple[dict[int, int], dict[int, int]]:
        """Return by lane where the log begins and ends; if `undecided`, after the transactions that are still open."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        level = IsolationLevel.READ_UNCOMMITTED if undecided else IsolationLevel.READ_COMMITTED
        places = self._partitions(dict.fromkeys(lanes, 0))

        def ask(spec: Any) -> dict[int, int]:
            asked = dict.fromkeys(places, spec)
            answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=self._limit_s)
            return {place.partition: int(answer.result().offset) for place, answer in answers.items()}

        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._asked(lambda: ask(earliest)), self._asked(lambda: ask(latest))

    def places(self, starts: Mapping[int, int], ends: Mapping[int, int], tick: int) -> dict[int, int]:
        """Return by lane the offset before which all answers are below a tick, and none from there on."""
        found = dict(starts)
        ends = dict(ends)
        while middles := {lane: (start + ends[lane]) // 2 for lane, start in found.items() if start < ends[lane]}:
            for lane, message in self._firsts(middles).items():
                if message is None or tick_of(message.key()) >= tick:
                    ends[lane] = middles[lane]
                else:
                    found[lane] = message.offset() + 1
        return found

    def read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Any]:
        """Yield all messages from offsets on, before others."""
        left = {lane for lane, start in starts.items() if start < ends[lane]}
        self._consumer.assign(self._partitions({lane: starts[lane] for lane in left}))
        while left:
            for message in self._next():
                lane, error = message.partition(), message.error()
                if error is None:
                    yield message
                # The last offsets may be transaction markers, which only show in the end event.
                if message.offset() + (error is None) >= ends[lane]:
                    left.discard(lane)

    def cut(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete what is before these offsets; return by lane where the log begins."""
        places = self._partitions(offsets)

        def cut() -> dict[int, int]:
            answers = self._admin.delete_records(places, request_timeout=self._limit_s)
            return {place.partition: answer.result().low_watermark for place, answer in answers.items()}

        return self._asked(cut)

    def _firsts(self, offsets: Mapping[int, int]) -> dict[int, Any]:
        """Return by lane the first message from an offset on; None if there is none."""
        self._consumer.assign(self._partitions(offsets))
        found: dict[int, Any] = {}
        while len(found) < len(offsets):
            for message in self._next():
                found.setdefault(message.partition(), message if message.error() is None else None)
        return found

    def _next(self) -> list[Any]:
        """Return what comes next, at least one message or end event."""
        from confluent_kafka import KafkaError

        messages: list[Any] = self._consumer.consume(1, self._limit_s)
        if not messages:
            raise self._unavailable(f"Kafka has returned nothing for {self._limit_s:g} s")
        messages += self._consumer.consume(BATCH, 0)
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise self._unavailable(error.str())
        return messages

    def _asked(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self._limit_s, lambda error: self._unavailable(error.str()))

    def _partitions(self, offsets: Mapping[int, int]) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._topic, lane, offset) for lane, offset in offsets.items()]

    def _unavailable(self, why: str) -> ServiceUnavailable:
        return ServiceUnavailable(
            f'cannot read or cut the topic "{self._topic}", which keeps the answers of a call: {why}',
            where=self.where,
            way_out="check that the broker runs, and that the job may read the topic and delete its records",
        )
