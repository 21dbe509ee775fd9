"""Idle heartbeats are granted from what a real broker says about its partitions' ends (R2, R3)."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import HANGS_S

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import EmbeddedServices
from lowtide.service.fronts import tail_state
from lowtide.service.fronts import tails as tails_module
from lowtide.service.fronts.broker_clock import BrokerClock, ClockEstimate, clock_topic
from lowtide.service.fronts.tails import Grant, Tail, TailHooks, Tails
from lowtide_snapshots.cause import Cause

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = pytest.mark.kafka

SKEW_MS = 50
IDLE_MS = 100
NEVER_S = 3600


@dataclass
class Heard:
    """The thread's reports."""

    tails: Tails = field(init=False)
    grants: list[Grant] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ends: int = 0
    """Number of these episodes that are over."""
    partitions: list[tuple[str, int]] = field(default_factory=list)

    def back(self) -> None:
        self.ends += 1

    def take(self, grants: list[Grant]) -> None:
        self.grants += grants

    def wait(self, what: Callable[[], Any], within_s: float = HANGS_S) -> None:
        """Wait for min time, so to speak."""
        deadline = time.monotonic() + within_s
        while not what():
            assert time.monotonic() < deadline, f"not within {within_s} s; the last grants: {self.grants[-3:]}"
            self.tails.active()
            time.sleep(0.001)

    def wait_idle(self, grants: int) -> None:
        """Wait for so many grants, of which nobody is in need."""
        deadline = time.monotonic() + HANGS_S
        while len(self.grants) < grants:
            assert time.monotonic() < deadline, f"{len(self.grants)} of {grants}"
            time.sleep(0.05)

    def wait_for(self, front: int, offset: int) -> None:
        """Wait for a grant that was asked for from now on."""
        begin = len(self.grants) + 8
        self.wait(lambda: any((grant.front, grant.offset) == (front, offset) for grant in self.grants[begin:]))


@contextmanager
def looking(
    kafka: Kafka,
    *tails: Tail,
    clock: ClockEstimate | None = None,
    topics: tuple[str, ...] = (),
    promises: dict[str, int | None] | None = None,
    idle_ms: int = IDLE_MS,
) -> Iterator[Heard]:
    heard = Heard()

    def failed(cause: Cause) -> None:
        heard.errors.append(str(cause))

    heard.tails = Tails(
        {"bootstrap.servers": kafka.address},
        TailHooks(heard.take, failed, heard.back, failed, heard.partitions.extend),
        skew_ms=SKEW_MS,
        topics=dict.fromkeys(topics or [tail.topic for tail in tails]),
        clock=clock,
        promises=lambda: promises or {},
        idle_ms=idle_ms,
    )
    for tail in tails:
        heard.tails.watch(tail)
    heard.tails.start()
    try:
        yield heard
    finally:
        heard.tails.close()


def producer(kafka: Kafka, **settings: Any) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": kafka.address, "linger.ms": 0, "log_level": 0, **settings})


def transactional(kafka: Kafka) -> Any:
    made = producer(kafka, **{"transactional.id": f"tails-{uuid.uuid4().hex[:8]}"})
    made.init_transactions(HANGS_S)
    return made


@contextmanager
def transaction(writer: Any, *, abort: bool = False) -> Iterator[None]:
    writer.begin_transaction()
    yield
    assert writer.flush(HANGS_S) == 0
    (writer.abort_transaction if abort else writer.commit_transaction)(HANGS_S)


def test_a_quiet_topic_is_granted_as_soon_as_somebody_waits(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else brings a look, as all that comes by itself comes in an hour."""
    monkeypatch.setattr(tails_module, "PARTITIONS_EVERY_S", NEVER_S)
    topic = kafka.topic("quiet", 4)
    kafka.produce(topic, [b"one", b"two"])
    tails = (Tail(partition, topic, partition, 0) for partition in range(4))
    with looking(kafka, *tails, idle_ms=NEVER_S * 1000) as heard:
        heard.wait_for(0, 2)
        heard.wait_for(3, 0)
        for _ in range(30):
            heard.tails.calm()
            before_ms = time.time() * 1000
            heard.wait_for(0, 2)
            assert before_ms - 150 <= heard.grants[-1].ms + SKEW_MS <= time.time() * 1000 + 150
    assert heard.errors == []
    assert heard.partitions == []


def test_a_topic_that_ends_in_a_marker_is_granted_at_what_its_owner_expects(kafka: Kafka) -> None:
    topic, writer = kafka.topic("marked"), transactional(kafka)
    with transaction(writer):
        writer.produce(topic, b"one")
    with looking(kafka, Tail(0, topic, 0, 0)) as heard:
        # The record at 0 has not been read by its owner yet.
        heard.wait_for(0, 2)
        assert {grant.offset for grant in heard.grants} <= {0, 2}
        heard.tails.at(0, 1)
        heard.wait_for(0, 1)
        with transaction(writer):
            writer.produce(topic, b"two")
        heard.wait_for(0, 4)
        heard.tails.at(0, 3)
        heard.wait_for(0, 3)


def test_a_topic_that_ends_in_aborted_records_is_granted_at_what_its_owner_expects(kafka: Kafka) -> None:
    topic, writer = kafka.topic("aborted"), transactional(kafka)
    kafka.produce(topic, [b"one"])
    with transaction(writer, abort=True):
        for _ in range(500):
            writer.produce(topic, b"x" * 1000)
    with looking(kafka, Tail(0, topic, 0, 1), Tail(7, topic, 0, 0)) as heard:
        heard.wait_for(0, 1)
        # Another source that reads the same topic, and is behind.
        assert {grant.offset for grant in heard.grants if grant.front == 7} <= {0, 1, 502}
        heard.tails.at(7, 1)
        heard.wait_for(7, 1)
        kafka.produce(topic, [b"two"])
        heard.wait_for(0, 503)
        heard.tails.at(0, 503)
        heard.wait_for(0, 503)
        assert kafka.messages(topic, 2)[-1].offset() == 502


def test_an_open_transaction_is_granted_at_its_first_record_and_no_further(kafka: Kafka) -> None:
    topic, writer = kafka.topic("open"), transactional(kafka)
    kafka.produce(topic, [b"one"])
    with looking(kafka, Tail(0, topic, 0, 1)) as heard:
        with transaction(writer):
            writer.produce(topic, b"two")
            assert writer.flush(HANGS_S) == 0
            kafka.produce(topic, [b"three"])
            heard.wait_for(0, 1)
            assert {grant.offset for grant in heard.grants} <= {0, 1}
        heard.wait_for(0, 4)
        assert [message.offset() for message in kafka.messages(topic, 3)] == [0, 1, 2]


def test_no_grant_is_at_or_below_a_record_that_could_be_read_before_it_was_asked_for(kafka: Kafka) -> None:
    plain, mixed = kafka.topic("plain", message_timestamp_type="LogAppendTime"), kafka.topic("mixed")
    clock = BrokerClock(
        {"bootstrap.servers": kafka.address}, clock_topic(plain), on_error=lambda cause: pytest.fail(str(cause))
    )
    clock.start()
    there = Readable(clock)
    try:
        with looking(kafka, Tail(0, plain, 0, 0), Tail(1, mixed, 0, 0), clock=clock) as heard:
            heard.wait(lambda: heard.grants)
            owner = threading.Thread(target=own, args=(kafka, mixed, heard, there))
            owner.start()
            write(plain, mixed, producer(kafka, acks="all"), transactional(kafka), heard, there)
            owner.join(HANGS_S)
            heard.wait_for(1, there.records[1][-1][0] + 1)
    finally:
        clock.close()
    for front, records in there.records.items():
        assert len(records) > 200
        grants = [grant for grant in heard.grants if grant.front == front and grant.offset <= records[-1][0]]
        assert len(grants) > 50
        for grant in grants:
            before = [record for record in records if record[0] >= grant.offset and record[1] < grant.ms + SKEW_MS]
            assert not before, f"{grant} though these could be read: {before}"


@dataclass
class Readable:
    """By front: (offset, the broker's time at which it could be read at the latest), in the order of offsets."""

    clock: ClockEstimate
    records: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {0: [], 1: []})

    def note(self, front: int, offset: int) -> None:
        self.records[front].append((offset, self.clock.at_least_ms()))


def write(plain: str, mixed: str, one_by_one: Any, writer: Any, heard: Heard, there: Readable) -> None:
    """For about two seconds: records acknowledged one by one, and transactions, every third of them aborted."""
    for number in range(60):
        with transaction(writer, abort=number % 3 == 2):
            for _ in range(6):
                writer.produce(mixed, b"x")
                one_by_one.produce(plain, b"x", on_delivery=lambda _, message: there.note(0, message.offset()))
                heard.tails.active()
                one_by_one.flush(HANGS_S)
                time.sleep(0.002)
    with transaction(writer):
        writer.produce(mixed, b"end")


def own(kafka: Kafka, topic: str, heard: Heard, there: Readable) -> None:
    """Read a topic as its owner would."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": kafka.address, "group.id": "none", "isolation.level": "read_committed"}
    consumer: Any = Consumer(settings | {"fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(topic, 0, 0)])
    value = None
    while value != b"end":
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value = message.value()
        there.note(1, message.offset())
        heard.tails.at(1, message.offset() + 1)
    consumer.close()


def test_a_partition_that_appears_is_reported_once(kafka: Kafka) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    topic = kafka.topic("grows", 2)
    with looking(kafka, Tail(0, topic, 0, 0), Tail(1, topic, 1, 0)) as heard:
        heard.wait_for(1, 0)
        admin: Any = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(HANGS_S)
        heard.wait(lambda: heard.partitions)
        heard.tails.watch(Tail(2, topic, 2, 0))
        heard.wait_for(2, 0)
        time.sleep(2.5)
        assert heard.partitions == [(topic, 2), (topic, 3)]


def test_a_topic_that_is_deleted_is_reported_once_and_the_others_go_on(kafka: Kafka) -> None:
    gone, stays = kafka.topic("gone"), kafka.topic("stays")
    with looking(kafka, Tail(0, gone, 0, 0), Tail(1, stays, 0, 0)) as heard:
        heard.wait_for(0, 0)
        Topics(Conf.load(None, {"kafka.bootstrap_servers": kafka.address}).kafka).delete(gone)
        what = f'the source topic "{gone}" is gone'
        heard.wait(lambda: any(what in error for error in heard.errors))
        before = len(heard.errors)  # A broker that forgets a topic slowly may first say that it has no leader.
        heard.wait_for(1, 0)
        time.sleep(2.5)
        assert (len(heard.errors), sum(what in error for error in heard.errors)) == (before, 1), heard.errors
        assert kafka.address in heard.errors[before - 1]


def test_a_broker_that_was_away_is_reported_once_and_grants_come_again(kafka: Kafka, tmp_path: Path) -> None:
    with EmbeddedServices(tmp_path / "services", only=["kafka"]) as services:
        own_kafka = type(kafka)(services)
        topic = own_kafka.topic("stopped", 3)
        with looking(own_kafka, *(Tail(number, topic, number, 0) for number in range(3))) as heard:
            heard.wait_for(2, 0)
            services.stop("kafka")
            heard.wait(lambda: heard.errors)
            time.sleep(2)
            granted = len(heard.grants)
            time.sleep(1)
            assert len(heard.grants) == granted
            assert (len(heard.errors), heard.ends) == (1, 0), heard.errors
            assert f"{topic}-2" in heard.errors[0]
            services.start("kafka")
            heard.wait_for(2, 0)
            # A broker that has just come may be too slow once more: that is another episode.
            heard.wait(lambda: heard.ends == len(heard.errors))
            before = heard.ends
            services.stop("kafka", grace_s=0)
            heard.wait(lambda: len(heard.errors) > heard.ends >= before)


def test_an_idle_job_costs_next_to_nothing(kafka: Kafka) -> None:
    topic = kafka.topic("idle", 8)
    others = threads()  # Which other tests have left in this process.
    with looking(kafka, *(Tail(partition, topic, partition, 0) for partition in range(8))) as heard:
        heard.wait_for(7, 0)
        heard.tails.calm()
        granted, began_s, spent_s = len(heard.grants), time.monotonic(), cpu_s(threads() - others)
        heard.wait_idle(granted + 30 * 8)
        looks, passed_s = (len(heard.grants) - granted) / 8, time.monotonic() - began_s
        assert (looks - 2) * IDLE_MS / 1000 <= passed_s, "one that was under way, and one that was due"
        assert cpu_s(threads() - others) - spent_s < 0.003 * looks


def test_the_brokers_clock_is_measured_by_a_topic_of_the_jobs_own(kafka: Kafka) -> None:
    topic, errors = clock_topic(uuid.uuid4().hex[:8]), list[Cause]()
    clock = BrokerClock({"bootstrap.servers": kafka.address}, topic, on_error=errors.append, every_s=0.05)
    clock.start()
    deadline = time.monotonic() + HANGS_S
    while not (clock.known and clock.within_ms < 20) and time.monotonic() < deadline:
        time.sleep(0.01)
    # The broker is on this machine.
    assert abs(clock.offset_ms) <= clock.within_ms + 1
    assert clock.within_ms < 20
    assert clock.at_least_ms() <= time.time() * 1000 + 1
    times = [clock.now_ms() for _ in range(1000)]
    assert times == sorted(times)
    time.sleep(0.3)
    clock.close()
    assert len(kafka.messages(topic)) > 5
    assert errors == []


def test_a_clock_that_cannot_be_measured_is_this_machines_and_reported_once(kafka: Kafka) -> None:
    errors: list[Cause] = []
    topic = kafka.topic("unstamped")
    clock = BrokerClock({"bootstrap.servers": kafka.address}, topic, on_error=errors.append, every_s=0.05)
    clock.start()
    deadline = time.monotonic() + HANGS_S
    while not clock.known and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    clock.close()
    assert clock.offset_ms == 0
    assert len(errors) == 1
    assert "LogAppendTime" in errors[0].way_out
    assert topic in errors[0].where


def threads() -> set[str]:
    """The threads of this process, librdkafka's as well."""
    return set(os.listdir("/proc/self/task"))


def cpu_s(of: set[str]) -> float:
    """CPU time of these threads."""
    return sum(int(Path(f"/proc/self/task/{each}/schedstat").read_text().split()[0]) for each in of) / 1e9


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_log_that_lacks_what_is_expected_ends_the_life_and_is_granted_nothing(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    """Retention deletes what an owner expects next: to its reader that must not look like an empty tail."""
    from confluent_kafka import TopicCollection, TopicPartition
    from confluent_kafka.admin import AdminClient

    monkeypatch.setattr(tail_state, "LOST_AFTER_S", 1.0)
    monkeypatch.setattr(tails_module, "IDS_EVERY_S", 0.5)
    topic = kafka.topic("cut", 1)
    writer = producer(kafka)
    for number in range(20):
        writer.produce(topic, b"%d" % number, partition=0)
    assert writer.flush(HANGS_S) == 0
    admin: Any = AdminClient({"bootstrap.servers": kafka.address})
    known = str(admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id)
    if not made_anew:
        admin.delete_records([TopicPartition(topic, 0, 10)])[TopicPartition(topic, 0)].result()
    lost: list[Cause] = []
    grants: list[Grant] = []
    tails = Tails(
        {"bootstrap.servers": kafka.address},
        TailHooks(grants.extend, lost.append, lambda: None, lost.append, lambda _: None),
        skew_ms=SKEW_MS,
        topics={topic: "another" if made_anew else known},
    )
    tails.watch(Tail(0, topic, 0, 5))
    tails.start()
    deadline = time.monotonic() + HANGS_S
    while not lost and time.monotonic() < deadline:
        tails.active()
        time.sleep(0.01)
    tails.close()
    assert ("was deleted and recreated" if made_anew else "lacks offset 5, which is expected next") in lost[0].what
    assert {grant.offset for grant in grants} == {20}, "none at the offset that is expected"


def test_a_topic_of_another_job_is_granted_what_that_job_promised_once_all_before_it_can_be_read(kafka: Kafka) -> None:
    topic = kafka.topic("of-a-job", 1)
    promises: dict[str, int | None] = {topic: None}
    writer = transactional(kafka)
    with looking(kafka, Tail(0, topic, 0, 0), promises=promises) as heard:
        heard.wait_for(0, 0)
        assert {grant.ms for grant in heard.grants} == {tail_state.NOTHING_MS}
        writer.begin_transaction()
        writer.produce(topic, b"one", partition=0)
        assert writer.flush(HANGS_S) == 0
        promises[topic] = 500
        heard.wait_for(0, 0)
        assert {grant.ms for grant in heard.grants} == {tail_state.NOTHING_MS}, "its record is not decided"
        writer.commit_transaction(30)
        heard.wait(lambda: any(grant.ms == 500 for grant in heard.grants))
        assert {grant.offset for grant in heard.grants if grant.ms == 500} == {2}
