"""The answers of calls on real Kafka: what is written in transactions is read from a commit on, and cut below it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.conftest import unique
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey, tick_of
from lowtide.core.operators.questions import Answer
from lowtide.driver.frozen import job_record
from lowtide.driver.homes import Homes
from lowtide.errors import ServiceUnavailable
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.steps.steps import Answers, CallFailed
from lowtide.sinks.answers.encoder import AnswersEncoder
from lowtide.sinks.answers.log import clear_answers, cut_answers, read_answers
from lowtide.sinks.answers.topics import answers_topics
from lowtide.sinks.errors import LastsLost
from lowtide.sinks.kafka.lasts import Durable
from lowtide.sinks.own_topics import open_topics
from lowtide_snapshots.job.store import JobStore

if TYPE_CHECKING:
    from tests.conftest import Kafka

    from lowtide.flow.plan.plan import Plan

LANES, TICKS = 3, 60
SLACK_MS = 10
FIRST = 1_600_000_000_000 // SLACK_MS
"""The first tick, of long ago: a job reads an old log."""
RECORD_BYTES = 1 << 20


@dataclass(frozen=True)
class Order:
    user: str


@dataclass(frozen=True)
class Score:
    score: int


def ask(order: Order) -> Score:
    return Score(len(order.user))


def flow_of(name: str, *, calls: bool = True) -> lt.Flow:
    flow = lt.Flow(name)
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
    scores = orders.call("score", ask, timeout=lt.seconds(1)) if calls else orders.map(ask)
    scores.write("out", lt.kafka("out", lt.json(Score)))
    return flow


class Answering:
    """The answers of one call, written as hosts do: in transactions, of which some are aborted.

    Attributes:
        kept: By lane what was committed, in order.
    """

    def __init__(self, kafka: Kafka) -> None:
        self.plan = compile_flow(flow_of(unique("answers")), parallelism=1, lanes=LANES, slack_ms=SLACK_MS)
        self.conf = Conf.load(None, {"kafka.bootstrap_servers": kafka.address}).kafka
        self.settings = librdkafka_settings(self.conf)
        self.id = self.open({})
        (own,) = answers_topics(self.plan).values()
        self.topic = own.name
        self.kept: dict[int, list[tuple[bytes, Answer]]] = {lane: [] for lane in range(LANES)}
        self._rng = random.Random(3)
        (vertex,) = self.plan.those(Answers)
        self._encoder = AnswersEncoder(self.plan, vertex)
        self._tick = FIRST
        self._producer = Producer({**self.settings, "transactional.id": self.topic, "log_level": 0})
        self._producer.init_transactions(HANGS_S)

    def open(self, known: dict[str, str]) -> dict[str, str]:
        return open_topics(answers_topics(self.plan), self.conf, LANES, known, RECORD_BYTES)

    def write(self, ticks: int) -> None:
        for _ in range(ticks):
            self._tick += 1
            aborted = self._rng.random() < 0.3
            self._write(aborted=aborted)
            if aborted:  # What the next transaction writes is as if this one had not been.
                self._write(aborted=False)

    def _write(self, *, aborted: bool) -> None:
        self._producer.begin_transaction()
        for lane in self._rng.sample(range(LANES), self._rng.randint(0, LANES)):
            answers = [self._answer(n) for n in range(self._rng.randint(1, 4))]
            ats = [OrderKey(self._tick, lane, n).packed() for n in range(len(answers))]
            for topic, place, key, value, timestamp, headers in self._encoder.encode(
                lane, [Piece(self._tick, ats, answers)]
            ):
                self._producer.produce(topic, value, key, place, timestamp=timestamp, headers=headers)
            if not aborted:
                self.kept[lane] += zip(ats, answers, strict=True)
        self._producer.flush(HANGS_S)
        if aborted:
            self._producer.abort_transaction(HANGS_S)
        else:
            self._producer.commit_transaction(HANGS_S)

    def _answer(self, number: int) -> Answer:
        if self._rng.random() < 0.2:
            return Answer(b"", CallFailed("raised ValueError: é", number, "Traceback\n"), self._rng.randbytes(8))
        return Answer(self._rng.randbytes(9), asked=self._rng.randbytes(8))

    def lasts(self) -> dict[int, OrderKey]:
        return {lane: OrderKey.of(kept[-1][0]) for lane, kept in self.kept.items() if kept}

    def wanted(self, tick: int) -> dict[bytes, Answer]:
        return {at: answer for kept in self.kept.values() for at, answer in kept if tick_of(at) >= tick}

    def read(self, tick: int) -> dict[bytes, Answer]:
        found, since = read_answers(self.settings, self.topic, self.lasts(), tick, HANGS_S)
        firsts = [own[0] for kept in self.kept.values() if (own := [at for at, _ in kept if tick_of(at) >= tick])]
        assert since == max(firsts, default=None), "none is missing from there on, in any lane"
        return found

    def cut(self, tick: int) -> dict[int, int]:
        return cut_answers(self.settings, self.topic, LANES, tick, HANGS_S)


@pytest.fixture(name="log")
def _log(kafka: Kafka) -> Answering:
    return Answering(kafka)


@pytest.mark.kafka
def test_a_life_knows_every_answer_from_its_commit_on(log: Answering) -> None:
    assert log.read(0) == {}
    log.write(TICKS)
    for tick in (0, FIRST + 1, FIRST + 2, FIRST + TICKS // 2, FIRST + TICKS, FIRST + TICKS + 1):
        assert log.read(tick) == log.wanted(tick)
    assert any(answer.failure is not None for answer in log.wanted(0).values())
    only = {1: log.lasts()[1]}
    own = dict(log.kept[1]), log.kept[1][0][0]
    assert read_answers(log.settings, log.topic, only, 0, HANGS_S) == own, "its own lanes alone"


@pytest.mark.kafka
def test_what_no_commit_needs_is_cut_and_nothing_else(log: Answering) -> None:
    log.write(TICKS)
    below = FIRST + TICKS // 3
    begins = log.cut(below)
    for lane, kept in log.kept.items():
        log.kept[lane] = [each for each in kept if tick_of(each[0]) >= below]
    assert log.read(0) == log.wanted(below), "all that is left"
    assert all(begins.values())
    assert log.cut(below) == log.cut(FIRST) == begins, "again, or for an older commit"
    log.write(5)
    assert log.read(below) == log.wanted(below)
    log.cut(FIRST + 2 * TICKS)
    log.kept = {lane: [] for lane in log.kept}
    log.write(TICKS)
    assert log.read(0) == log.wanted(0), "after all of it was cut"


@pytest.mark.kafka
def test_an_answer_that_somebody_has_deleted_is_missed(log: Answering) -> None:
    log.write(TICKS)
    clear_answers(log.settings, log.topic, LANES, HANGS_S)
    with pytest.raises(LastsLost, match=f'the topic "{log.topic}" lacks the last answer that was kept, of tick'):
        log.read(FIRST)
    assert log.read(FIRST + TICKS + 1) == {}, "nobody needs it"


@pytest.mark.kafka
def test_the_topic_is_made_once_and_known_again(log: Answering) -> None:
    assert log.topic == f"lowtide.{log.plan.name}.answers.score"
    topic = Topics(log.conf).describe(log.topic)
    assert (topic.partitions, topic.cleanup, topic.timestamps) == (LANES, "delete", "CreateTime")
    assert log.open(log.id) == log.id == {"score": topic.id}
    with pytest.raises(LastsLost, match='in which the answers of call "score" are kept, has been replaced by another'):
        log.open({"score": "another"})


@pytest.mark.kafka
@pytest.mark.zookeeper
def test_a_new_output_generation_asks_again(log: Answering, zookeeper: str) -> None:
    conf = Conf.load(None, {"kafka.bootstrap_servers": log.conf.bootstrap_servers})
    said: list[str] = []
    with JobStore(zookeeper, log.plan.name) as store:
        store.freeze(job_record(log.plan))
        store.take_lease("a test", HANGS_S, lambda _: None)

        def life(plan: Plan = log.plan) -> Homes:
            homes = Homes(store, plan, conf, store.raise_incarnation(), said.append)
            homes.claim(set())
            return homes

        life()
        log.write(TICKS)
        homes = life()
        assert log.read(0) == log.wanted(0), "a start changes nothing"
        homes.deliver_again(Durable({}, ()))
        log.kept = {lane: [] for lane in log.kept}
        log.write(5)
        life()
        assert log.read(0) == log.wanted(0)
        assert sum(log.cut(0).values()) > 0, "those of the first generation are gone"
        said.clear()
        life(compile_flow(flow_of(log.plan.name, calls=False), parallelism=1, lanes=LANES, slack_ms=SLACK_MS))
    wanted = f'topic "{log.topic}" stays, with answers of call "score", which the flow no longer keeps'
    assert said.count(wanted) == 1


def test_a_kafka_that_is_not_there_is_named() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ServiceUnavailable, match='cannot read or cut the topic "answers"'):
        cut_answers(nowhere, "answers", 1, 5, 0.2)
