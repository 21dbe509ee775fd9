"""Floors leave the lasts topic for the archive, on a real broker; a start takes as long after a million of them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.floor_judge import read_recorded
from tests.waiting import HANGS_S

from lowtide.conf import Conf, KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.core.fronts.floors import Steps, pack, unpack
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.order.order import OrderKey
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.floor_archive import Tidied, archive_of, read_archived, tidy
from lowtide.sinks.kafka.lasts import LastsLost, newest, open_lasts, read_lasts, records_of, topic_of, write
from lowtide.sinks.kafka.lasts_records import Durable, durable_of
from lowtide_tracker import Floor

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = pytest.mark.kafka

LANE, LAST = LaneName(0, "out", 0), OrderKey(9, 0, 1)
FLOORS = [Floor(0, 10 * n, 100 + n) for n in range(20)] + [Floor(1, 5, 7), Floor(1, 6, 3, cap=True)]
MANY = 1_000_000
START_US = 20.0
"""Of CPU, for each floor."""


class Lasts:
    """The lasts topic of a job of its own."""

    def __init__(self, kafka: Kafka) -> None:
        self.conf: KafkaConf = Conf.load(None, {"kafka.bootstrap_servers": kafka.address}).kafka
        self.settings = librdkafka_settings(self.conf)
        self.job = f"job-{uuid.uuid4().hex[:8]}"
        self.topic = topic_of(self.job)
        open_lasts(self.conf, self.job, None)

    def keep(self, floors: Iterable[Floor], last: OrderKey | None = LAST) -> None:
        write(self.settings, self.topic, records_of(LANE, last, floors, 1), HANGS_S)

    def tidy(self, below: dict[int, int], incarnation: int = 1) -> Tidied:
        return tidy(self.settings, self.job, self.topic, below, incarnation, HANGS_S)

    def read(self) -> Durable:
        return read_lasts(self.conf, self.topic, HANGS_S)

    def floors(self, start: dict[int, int]) -> tuple[Floor, ...]:
        return read_archived(self.conf, self.job, self.read(), start, HANGS_S)


@pytest.fixture
def lasts(kafka: Kafka) -> Lasts:
    return Lasts(kafka)


def test_floors_below_a_commit_leave_the_lasts_topic_and_are_found_by_who_begins_below(lasts: Lasts) -> None:
    """R2: a start from the last commit reads what it needs; one without state labels as the first life did."""
    lasts.keep(FLOORS)
    assert lasts.tidy({0: 175, 1: 7}) == Tidied(kept=4, archived=18, removed=18)
    durable = lasts.read()
    assert durable.last == {LANE: LAST}
    assert durable.floors == (Floor(0, 170, 117), Floor(0, 180, 118), Floor(0, 190, 119), Floor(1, 5, 7))
    assert lasts.floors({0: 175, 1: 7}) == durable.floors
    for start in ({}, {0: 60, 1: 7}, {0: 175}):
        assert lasts.floors(start) == tuple(sorted(FLOORS)), "all of them, as they were"


def test_every_floor_is_found_with_the_date_that_the_broker_gave_it(lasts: Lasts) -> None:
    """Wherever it is kept: what judges floors (`floor_judge`) goes by that."""
    began_ms = time.time_ns() // 1_000_000
    lasts.keep(FLOORS)
    lasts.tidy({0: 175, 1: 7})
    lasts.keep([Floor(0, 200, 120)])
    recorded = read_recorded(lasts.conf, lasts.job)
    assert sorted(each.floor for each in recorded) == sorted([*FLOORS, Floor(0, 200, 120)])
    assert all(began_ms <= each.at_ms <= time.time_ns() // 1_000_000 for each in recorded)


def test_what_is_done_twice_or_breaks_off_is_whole_the_next_time(lasts: Lasts) -> None:
    lasts.keep(FLOORS)
    lasts.tidy({0: 100, 1: 7})
    assert lasts.tidy({0: 100, 1: 7}) == Tidied(kept=11, archived=0, removed=0)
    # It broke off before the last step: the archive has them, and the lasts topic still does.
    lasts.keep(FLOORS[:3], None)
    assert lasts.floors({}) == tuple(sorted(FLOORS))
    lasts.tidy({0: 150, 1: 7}, incarnation=2)
    # A life that is over still moves what it knows to be below its own commit.
    lasts.tidy({0: 120, 1: 7}, incarnation=1)
    assert lasts.floors({0: 130, 1: 7}) == tuple(sorted(FLOORS)), "the newer life's word counts"


def test_a_topic_that_is_written_all_the_time_is_read_to_where_it_ended(lasts: Lasts) -> None:
    """As a job's is that is looked at while it runs."""
    lasts.keep(FLOORS)
    over = threading.Event()

    def deliver() -> None:
        producer = Producer({**lasts.settings, "transactional.id": lasts.job, "linger.ms": 0})
        producer.init_transactions()
        while not over.is_set():
            producer.begin_transaction()
            for key, value in records_of(LANE, LAST, [], 1):
                producer.produce(lasts.topic, value, key, 0)
            producer.commit_transaction()

    thread = threading.Thread(target=deliver)
    thread.start()
    ends = threading.Timer(HANGS_S, over.set)
    ends.start()
    try:
        for _ in range(5):
            assert durable_of(newest(lasts.settings, lasts.topic, HANGS_S), lasts.topic).floors == tuple(sorted(FLOORS))
        assert not over.is_set(), "it was read to its end only when nobody wrote any more"
    finally:
        ends.cancel()
        over.set()
        thread.join()


def test_a_floor_that_another_covers_goes(lasts: Lasts) -> None:
    lasts.keep([Floor(0, 5, 10), Floor(0, 5, 20), Floor(0, 9, 15)])
    assert lasts.tidy({}) == Tidied(kept=1, archived=0, removed=2)
    assert lasts.read().floors == (Floor(0, 5, 20),)


def test_an_archive_that_is_gone_is_missed_by_who_needs_it_and_by_nobody_else(lasts: Lasts) -> None:
    lasts.keep(FLOORS)
    lasts.tidy({0: 100, 1: 7})
    Topics(lasts.conf).delete(archive_of(lasts.job))
    assert len(lasts.floors({0: 100, 1: 7})) == 11
    with pytest.raises(LastsLost, match="is gone"):
        lasts.floors({})
    with pytest.raises(LastsLost, match="is gone"):
        lasts.tidy({0: 150, 1: 7})
    assert len(lasts.read().floors) == 11, "nothing was removed"


@pytest.mark.slow
@pytest.mark.parametrize("many", [MANY // 10, pytest.param(MANY, marks=pytest.mark.nightly)])
def test_a_start_after_many_quiet_moments(
    lasts: Lasts, record_property: Callable[[str, object], None], many: int
) -> None:
    """What of a start hangs on floors, once before they have left the lasts topic, and once after."""
    floors = [Floor(n % 4, 40 * (n // 4), 880_000_000_000 + 20 * n) for n in range(many)]
    write(lasts.settings, lasts.topic, records_of(LANE, LAST, floors, 1), 10 * HANGS_S)
    before_s = started(lasts, {})
    began_s = time.monotonic()
    newest = 10 * many - 4000
    lasts.tidy(dict.fromkeys(range(4), newest))
    tidy_s = time.monotonic() - began_s
    after_s = started(lasts, dict.fromkeys(range(4), newest))
    for name, took_s in (("all", before_s), ("after a commit", after_s), ("to archive them", tidy_s)):
        record_property(f"{many:,} floors, {name}: s", round(took_s, 1))
    assert before_s < START_US * many / 1e6
    assert after_s < START_US * many / 1e6
    assert len(lasts.read().floors) < 1_000


def started(lasts: Lasts, start: dict[int, int]) -> float:
    """Seconds of CPU that it takes to read the floors, to hand them out and to make a front of each partition."""
    began_s = time.process_time()
    durable = lasts.read()
    durable = replace(durable, floors=read_archived(lasts.conf, lasts.job, durable, start, HANGS_S))
    needed = Steps(durable.floors)
    for front, offset in start.items():
        needed.cut(front, offset)
    packed = pack(needed)
    assert sum(map(len, packed.values())) < 16 << 20, "a small part of what the plan's message may be"
    for front, data in packed.items():
        Front(
            front,
            FrontLimits(2, Window(5000, 64 << 20), 60_000),
            KnownFloors(0, unpack(front, data)),
            offset=start.get(front, 0),
        )
    return time.process_time() - began_s
