"""The answers of calls on real Kafka: what is written in transactions is read from a commit on, and cut below it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.conftest import unique
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import TopicRefused, Topics
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey, tick_of
from lowtide.core.operators.questions import Answer
from lowtide.driver.frozen import job_record
from lowtide.driver.growth import grow
from lowtide.driver.homes import Homes
from lowtide.driver.life_note import LifeNote
from lowtide.driver.opening import begin_life
from lowtide.driver.standby import Sequel, sequel
from lowtide.errors import LifeEnded, ServiceUnavailable
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.lane_partitions import partition_of_lane, partitions_before
from lowtide.flow.steps.steps import Answers, CallFailed
from lowtide.sinks.answers.encoder import AnswersEncoder
from lowtide.sinks.answers.log import clear_answers, cut_answers, read_answers
from lowtide.sinks.answers.topics import answers_topics
from lowtide.sinks.contract import LaneName
from lowtide.sinks.errors import LastsLost
from lowtide.sinks.kafka.lasts import Durable, read_lasts, records_of, write
from lowtide.sinks.own_topics import open_topics
from lowtide_snapshots.job.life import Life
from lowtide_snapshots.job.record import JobRecord
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
        kept: By lane what was committed, in order; of the lanes before a growth each of their parts has it.
        has_cut: Whether partitions that a growth has made were cut.
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
        self._encoder = self._encoding()
        self.has_cut = False
        self._tick = FIRST
        self._producer = self._claimed()

    def _claimed(self) -> Producer:
        producer = Producer({**self.settings, "transactional.id": self.topic, "log_level": 0})
        producer.init_transactions(HANGS_S)
        return producer

    def _encoding(self) -> AnswersEncoder:
        (vertex,) = self.plan.those(Answers)
        return AnswersEncoder(self.plan, vertex)

    def open(self, known: dict[str, str]) -> dict[str, str]:
        plan = self.plan
        return open_topics(answers_topics(plan), self.conf, plan.lanes, known, RECORD_BYTES, plan.grown)

    def grow(self, parts: int) -> None:
        self.plan = replace(self.plan, lanes=parts * self.plan.lanes, grown=self.plan.lane_counts)
        assert self.open(self.id) == self.id
        self.kept = {lane: list(self.kept[lane // parts]) for lane in range(self.plan.lanes)}
        self._encoder, self._producer = self._encoding(), self._claimed()

    def write(self, ticks: int) -> None:
        for _ in range(ticks):
            self._tick += 1
            aborted = self._rng.random() < 0.3
            self._write(aborted=aborted)
            if aborted:  # What the next transaction writes is as if this one had not been.
                self._write(aborted=False)

    def _write(self, *, aborted: bool) -> None:
        self._producer.begin_transaction()
        lanes = self.plan.lanes
        for lane in self._rng.sample(range(lanes), self._rng.randint(0, lanes)):
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
        found, since = read_answers(self.settings, self.topic, self.lasts(), tick, HANGS_S, self.plan.lane_counts)
        firsts = {
            lane: own[0] for lane, kept in self.kept.items() if (own := [at for at, _ in kept if tick_of(at) >= tick])
        }
        places = partition_of_lane(self.plan.lane_counts)
        oldest = [first for lane, first in firsts.items() if places[lane] < LANES] or firsts.values()
        expected = max(oldest, default=None)
        later = self.has_cut and (since or b"") > (expected or b"")
        assert since == expected or later, "none is missing from there on, in any lane"
        return found

    def cut(self, tick: int) -> dict[int, int]:
        self.has_cut = self.plan.grown != ()
        return cut_answers(self.settings, self.topic, self.plan.lanes, tick, HANGS_S)


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
def test_a_life_with_more_lanes_knows_what_the_lanes_before_were_answered(log: Answering) -> None:
    """Those of a lane are in the partitions that it had, each sorted; none is missing since the first of the oldest."""
    log.write(TICKS)
    for parts in (2, 3):
        log.grow(parts)
        assert log.read(FIRST) == log.wanted(FIRST), "nothing is in the new partitions"
        log.write(TICKS)
        for tick in (FIRST, FIRST + TICKS, FIRST + TICKS + 1, FIRST + parts * TICKS):
            assert log.read(tick) == log.wanted(tick)
    lane, counts = 7, log.plan.lane_counts  # The second part of the first part of the second lane of three.
    assert len(partitions_before(counts, lane)) == 2
    own, _ = read_answers(log.settings, log.topic, {lane: log.lasts()[lane]}, 0, HANGS_S, counts)
    assert {at: own[at] for at, _ in log.kept[lane]} == dict(log.kept[lane])
    assert len(own) < len(log.wanted(0))
    below = FIRST + 5 * TICKS // 2
    log.cut(below)
    log.kept = {lane: [each for each in kept if tick_of(each[0]) >= below] for lane, kept in log.kept.items()}
    assert log.read(0) == log.wanted(below)
    clear_answers(log.settings, log.topic, log.plan.lanes, HANGS_S)
    with pytest.raises(LastsLost, match="lacks the last answer"):
        log.read(0)


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


@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.parametrize("next_is", ["a start", "the same growth", "another growth"])
def test_a_growth_that_breaks_off_is_gone_on_with(
    log: Answering, zookeeper: str, monkeypatch: pytest.MonkeyPatch, next_is: str
) -> None:
    """Before the record has the number all is as it was; after that a start does the rest, or another growth."""
    conf = Conf.load(None, {"kafka.bootstrap_servers": log.conf.bootstrap_servers})
    widen = Topics.widen

    def refuse(*_: object, **__: object) -> None:
        raise TopicRefused("the broker allows no partitions")

    def break_off(self: Topics, name: str, partitions: int, *, dry: bool = False) -> None:
        if not dry:
            raise ServiceUnavailable("the program is killed")
        widen(self, name, partitions, dry=True)

    def opened(store: JobStore, plan: Plan) -> None:
        Homes(store, plan, conf, store.raise_incarnation(), lambda _: None).claim(set())

    def growing(lanes: int) -> tuple[int, ...]:
        with JobStore(zookeeper, log.plan.name) as store:
            found = store.record()
            assert found is not None
            try:
                grow(store, found, lanes, conf, lambda _: None)
            finally:
                found = store.record()
                assert found is not None
                counts.append(found.lane_counts)
        return counts[-1]

    counts: list[tuple[int, ...]] = []
    topics = Topics(log.conf)
    with JobStore(zookeeper, log.plan.name) as store:
        store.freeze(job_record(log.plan))
        store.take_lease("a test", HANGS_S, lambda _: None)
        opened(store, log.plan)
    monkeypatch.setattr(Topics, "widen", refuse)
    with pytest.raises(TopicRefused, match="allows no partitions"):
        growing(6)
    monkeypatch.setattr(Topics, "widen", break_off)
    with pytest.raises(ServiceUnavailable, match="is killed"):
        growing(6)
    assert counts == [(3,), (3, 6)]
    assert topics.describe(log.topic).partitions == 3
    monkeypatch.setattr(Topics, "widen", widen)
    if next_is == "a start":
        with JobStore(zookeeper, log.plan.name) as store:
            store.take_lease("a test", HANGS_S, lambda _: None)
            opened(store, replace(log.plan, lanes=6, grown=(3,)))
        assert topics.describe(log.topic).partitions == 6
    if next_is == "the same growth":
        assert growing(6) == (3, 6)
        assert topics.describe(log.topic).partitions == 6
    assert growing(18) == (3, 6, 18)
    assert topics.describe(log.topic).partitions == 18


@pytest.mark.kafka
@pytest.mark.zookeeper
def test_a_growth_goes_by_the_record_that_it_finds_with_the_lease(log: Answering, zookeeper: str) -> None:
    """Another one, and a life of that, have come before: what is said of lanes is of those that there are then."""
    conf = Conf.load(None, {"kafka.bootstrap_servers": log.conf.bootstrap_servers})
    with JobStore(zookeeper, log.plan.name) as store:
        before = store.freeze(job_record(log.plan))
        store.take_lease("a test", HANGS_S, lambda _: None)
        homes = Homes(store, log.plan, conf, store.raise_incarnation(), lambda _: None)
        homes.claim(set())
    with JobStore(zookeeper, log.plan.name) as store:
        grown = grow(store, before, 6, conf, lambda _: None)
    last = LaneName(1, "score/answers", 5)
    write(log.settings, homes.lasts_topic, records_of(last, OrderKey(FIRST, 0, 1), (), 1), HANGS_S)
    with JobStore(zookeeper, log.plan.name) as store:
        assert grow(store, before, 6, conf, lambda _: None) == grown, "done already"
        assert grow(store, before, 12, conf, lambda _: None).lane_counts == (3, 6, 12)
    units = grown.units_of_lane(5)
    (name,) = read_lasts(log.conf, homes.lasts_topic, HANGS_S).last
    assert (name.lane, name.end) == (units.start, units.stop)


@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.parametrize(
    ("phase", "seen"), [("stopping", "stopped"), ("stopped", "stopped"), ("failed", "failed"), ("running", "")]
)
def test_a_job_that_has_grown_has_ended_as_its_last_life_has(
    log: Answering, zookeeper: str, phase: str, seen: str
) -> None:
    """Airflow starts a job again whose newest life has reported no end: one that was stopped stays so."""
    conf = Conf.load(None, {"kafka.bootstrap_servers": log.conf.bootstrap_servers})
    with JobStore(zookeeper, log.plan.name) as store:
        frozen = store.freeze(job_record(log.plan))
        store.take_lease("a test", HANGS_S, lambda _: None)
        note = LifeNote(store, "exactly_once")
        note.incarnation = store.raise_incarnation()
        note._say(phase)  # type: ignore[arg-type]
    with JobStore(zookeeper, log.plan.name) as store:
        grow(store, frozen, 6, conf, lambda _: None)
        life = Life.of(store.life() or {})
        assert store.incarnation() == 2
        assert (life.incarnation, life.phase, life.again) == ((2, seen, False) if seen else (1, "running", False))
        assert sequel(store.holder(), life, 2, 0.0) is (Sequel.END if seen == "stopped" else Sequel.TAKE)


@pytest.mark.kafka
@pytest.mark.zookeeper
def test_a_start_that_waited_for_the_lease_while_the_job_grew_ends(log: Answering, zookeeper: str) -> None:
    """Its plan has too few lanes, and it would take the topics of all for those of a stranger."""
    conf = Conf.load(None, {"kafka.bootstrap_servers": log.conf.bootstrap_servers})
    with JobStore(zookeeper, log.plan.name) as store:
        store.freeze(job_record(log.plan))
    freeze = JobStore.freeze

    def overtaken(self: JobStore, record: JobRecord) -> JobRecord:
        found = freeze(self, record)
        with JobStore(zookeeper, log.plan.name) as other:
            grow(other, found, 6, conf, lambda _: None)
        return found

    with JobStore(zookeeper, log.plan.name) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobStore, "freeze", overtaken)
        with pytest.raises(LifeEnded, match="the job has got 6 lanes while this start waited, which began with 3"):
            begin_life(store, log.plan, conf, lambda _: None)


def test_a_kafka_that_is_not_there_is_named() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ServiceUnavailable, match='cannot read or cut the topic "answers"'):
        cut_answers(nowhere, "answers", 1, 5, 0.2)
