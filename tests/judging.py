"""The verdict on what a job has delivered: the log, the fronts and the floors it used, and a run here and now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.floor_judge import FrontLog, read_recorded, wrong_floors
from tests.waiting import HANGS_S, Asked

from lowtide.api import Flow
from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.schema_registry import bound
from lowtide.connectors.topics import Topics
from lowtide.core.fronts.register import FrontRegister
from lowtide.core.operators.questions import Answer
from lowtide.driver.query import topics_of
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.message import Message
from lowtide.local.asking import kept_answers
from lowtide.local.oracle import (
    Output,
    Verdict,
    compare_shared,
    lanes_of,
    read_log,
    read_output,
    read_sources,
    shares_of,
)
from lowtide.local.run import Delivered, run_log
from lowtide.sinks.answers.encoder import answer_of
from lowtide.sinks.answers.topics import answers_topics
from lowtide.sinks.kafka.floor_archive import read_archived
from lowtide.sinks.kafka.lasts import read_lasts, topic_of

DATED = "LogAppendTime"


class Judge:
    """Judges one job. What was produced before a verdict is asked for is what had to be delivered.

    Args:
        flow: The job's.
        conf: What it was started with.
        answers: By call what its service says in any case; else those count that the job has kept, which must be all.
    """

    def __init__(self, flow: Flow, conf: Conf, answers: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self._answers = answers
        # A broker on a busy machine may take longer than a job has patience for it.
        patient = replace(conf.kafka, reach_limit_ms=max(conf.kafka.reach_limit_ms, int(HANGS_S * 1000)))
        self._conf = replace(conf, kafka=patient)
        self._job = flow.name
        self._plan: Plan = bound(compile_job(flow, conf), conf)
        self._topics = {vertex.name: sink.topic for vertex, sink in self._plan.kafka_sinks()}

    def register(self) -> FrontRegister:
        """The fronts that the job has registered."""
        with ZooKeeperAccess.of(self._conf.zookeeper).store(self._job) as store:
            return FrontRegister.from_json(store.fronts())

    def fronts(self) -> dict[str, int]:
        """The front's number of each partition."""
        entries = self.register().entries
        return {f"{entry.partition.source}-{entry.partition.partition}": entry.number for entry in entries}

    def expected(
        self, *, asks: bool = False
    ) -> tuple[dict[str, dict[int, list[Output]]], Counter[tuple[bytes | None, bytes | None]]]:
        """By sink and lane what is to be delivered, and the dead letters.

        Args:
            asks: True to ask the services of calls now; else they answer as the job has kept it, which is all of it.
        """
        written, dead = self._written(asks=asks)
        return {sink: lanes_of(self._plan, messages) for sink, messages in written.items()}, dead

    def _written(
        self, *, asks: bool = False
    ) -> tuple[dict[str, list[Delivered]], Counter[tuple[bytes | None, bytes | None]]]:
        read = {entry.number: (entry.offset, entry.stop) for entry in self.register().entries}
        log = {
            name: [each for each in found if _lies_in(each.position.sequence, *read[each.position.front])]
            for name, found in read_sources(self._conf.kafka, self._plan, self.fronts()).items()
        }
        with ZooKeeperAccess.of(self._conf.zookeeper).store(self._job) as store:
            generation = store.lasts()[1]
        durable = read_lasts(self._conf.kafka, topic_of(self._job, generation), HANGS_S)
        archived = read_archived(self._conf.kafka, self._job, durable, {}, HANGS_S)
        floors = [*archived, *self.register().floors()]
        preloaded = {each.number: each.preloaded for each in self.register().entries if each.preloaded is not None}
        kept = None if asks or self._answers else self.kept()
        written, dead = run_log(self._plan, log, floors, preloaded=preloaded, kept=kept, answers=self._answers)
        return written, Counter((letter.key, letter.value) for letter in dead)

    def kept(self) -> dict[str, dict[bytes, Answer]]:
        """By call the answers that are kept, each once, by the place of its record."""
        found: dict[str, dict[bytes, Answer]] = {}
        for call, topic in answers_topics(self._plan).items():
            lanes = read_output(self._conf.kafka, topic.name).values()
            answers = [answer_of(_Sent(each)) for lane in lanes for each in lane]
            found[call] = kept_answers(dict(answers))
            assert len(found[call]) == len(answers), f"{call}: a record is answered twice"
        return found

    def wrong_floors(self, believed_ms: Callable[[int], int] = lambda ms: ms) -> list[str]:
        """What is wrong with the floors that the job has recorded, in words: `expected` takes them as they are.

        Args:
            believed_ms: See `read_recorded`.
        """
        job, kafka = self._conf.job, self._conf.kafka
        with ZooKeeperAccess.of(self._conf.zookeeper).store(self._job) as store:
            recorded = read_recorded(kafka, self._job, store.lasts()[1], believed_ms)
        entries = self.register().entries
        topics = topics_of(self._plan)
        dated = {topic.name for topic in Topics(kafka).describe_all(topics) if topic.timestamps == DATED}
        logs = {topic: read_log(kafka, topic, self.fronts()) for topic in topics}
        fronts = {
            entry.number: FrontLog(logs[topic][entry.partition.partition], entry.opening, topic in dated)
            for entry in entries
            if (topic := entry.partition.source) in logs
        }
        return wrong_floors(
            recorded,
            fronts,
            slack_ms=self._plan.slack_ms,
            skew_ms=job.allowed_skew_ms,
            max_future_ms=job.max_future_ms,
        )

    def verdict(self, sink: str = "out") -> Verdict:
        """Compare what one sink's topic holds now with what it had to be given."""
        return self._compared(sink, self._written()[0][sink])

    def _compared(self, sink: str, due: Sequence[Delivered], until_ms: int | None = None) -> Verdict:
        """Compare a topic with what was due in it, lane by lane, of which a partition may hold several."""
        topic = self._topics[sink]
        with ZooKeeperAccess.of(self._conf.zookeeper).store(self._job) as store:
            partitions = store.partitions().get(topic, self._plan.lanes)
        came = before(until_ms, read_output(self._conf.kafka, topic))
        due = [each for each in due if until_ms is None or each.timestamp < until_ms]
        return compare_shared(shares_of(self._plan, due, partitions), came)

    def right(self, within_s: float = HANGS_S, until_ms: int | None = None) -> int:
        """Wait until every sink has as much as it has to have, then see that it is that, byte by byte and in order.

        Args:
            within_s: How long to wait.
            until_ms: What comes at this log time or later is not due; None where log time goes on by itself.

        Returns:
            How many messages there are in all sinks.
        """
        sinks, letters = self._due(until_ms, asks=True)
        deadline = time.monotonic() + within_s
        for sink, lanes in sinks.items():
            self._await(self._topics[sink], sum(map(len, lanes.values())), deadline, until_ms)
        if self._plan.dead_letters is not None:
            self._await(self._plan.dead_letters.topic, letters.total(), deadline)
        # Floors that were granted meanwhile have lifted what came after them, so they are read again.
        written, letters = self._written()
        for sink, due in written.items():
            verdict = self._compared(sink, due, until_ms)
            assert verdict.right, f"{sink}: {verdict}"
        if self._plan.dead_letters is not None:
            found = read_output(self._conf.kafka, self._plan.dead_letters.topic)
            assert Counter((each.key, each.value) for lane in found.values() for each in lane) == letters
        assert self.wrong_floors() == []
        return sum(len(lane) for lanes in sinks.values() for lane in lanes.values())

    def _due(
        self, until_ms: int | None, *, asks: bool = False
    ) -> tuple[dict[str, dict[int, list[Output]]], Counter[tuple[bytes | None, bytes | None]]]:
        """The records expected before a moment of log time."""
        sinks, letters = self.expected(asks=asks)
        return {sink: before(until_ms, lanes) for sink, lanes in sinks.items()}, letters

    def _await(self, topic: str, count: int, deadline: float, until_ms: int | None = None) -> None:
        asked = Asked()
        while committed(self._conf, topic, until_ms) < count and time.monotonic() < deadline:
            asked.pause()


class _Sent:
    """A message as a consumer gives it."""

    def __init__(self, output: Output) -> None:
        self.key = lambda: output.key
        self.value = lambda: output.value
        self.headers = lambda: output.headers


def _lies_in(offset: int, start: int, stop: int | None) -> bool:
    return start <= offset and (stop is None or offset < stop)


def before(until_ms: int | None, lanes: Mapping[int, list[Output]]) -> dict[int, list[Output]]:
    """The records that came before a moment of log time, by lane; all of them where there is none."""
    return {
        lane: [each for each in found if until_ms is None or each.timestamp < until_ms] for lane, found in lanes.items()
    }


def committed(conf: Conf, topic: str, until_ms: int | None = None) -> int:
    """Number of messages that a read_committed reader finds in a topic."""
    return sum(map(len, before(until_ms, read_output(conf.kafka, topic)).values()))


def produce(
    conf: Conf, topic: str, values: Mapping[int, Sequence[tuple[bytes | Message, int | None]]], *, transaction: str = ""
) -> None:
    """Write messages to the partitions of a topic and wait until the broker has them.

    Args:
        conf: Where.
        topic: The topic.
        values: By partition, in order: the value or the message, and its timestamp in ms, None for now.
        transaction: "commit" or "abort" writes them in one transaction that ends so.
    """
    from confluent_kafka import Producer

    settings = {**librdkafka_settings(conf.kafka), "linger.ms": 1, "enable.idempotence": True}
    if transaction:
        settings["transactional.id"] = f"producer-of-{topic}"
    refused = []

    def taken(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(settings)
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for partition, messages in values.items():
        for each, at_ms in messages:
            whole = Message(value=each) if isinstance(each, bytes) else each
            producer.produce(
                topic,
                whole.value,
                whole.key,
                partition,
                on_delivery=taken,
                timestamp=at_ms or 0,
                headers=list(whole.headers),
            )
            producer.poll(0)
    assert producer.flush(30) == 0
    assert not refused, refused
    if transaction == "commit":
        producer.commit_transaction(30)
    elif transaction:
        producer.abort_transaction(30)
