"""A job that writes a staged sink: its driver is killed, its store is away, it is stopped (R20, R21)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.conftest import unique
from tests.flow_program import FlowProgram, orders
from tests.line_store import Lines, lines_of
from tests.settings import settings_of
from tests.waiting import HANGS_S, wait_until

import lowtide as lt
from lowtide.cli.main import run
from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.connectors.topic_records import read_topic
from lowtide.driver.growth import grow
from lowtide.driver.job import Job
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.sinks.staged.encoder import MARK
from tests import line_store

if TYPE_CHECKING:
    from tests.conftest import Kafka, Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
PART = 1_000
LANES = 6
"""Three for each worker, which are one strand."""
SINKS = """
from line_store import Lines

orders.write("lines", Lines("{folder}", Order, mark_every_ms=100))
"""


@dataclass(frozen=True)
class Order:
    user: str
    number: int


class Program(FlowProgram):
    """The flow with a folder of lines."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str) -> None:
        self.store = folder / "store"
        self.store.mkdir()
        # Beside the flow, so that carriers get its code with the sink.
        shutil.copy(str(line_store.__file__), folder)
        self.settings_of_job = settings_of(kafka, zookeeper, folder, 12) | {"job.lanes": LANES, "job.restarts": 0}
        super().__init__(folder, kafka, SINKS.format(folder=self.store), self.settings_of_job)
        self.conf = Conf.load(None, self.settings_of_job)

    def lines(self) -> list[Any]:
        return [msgspec.json.decode(value) for lane in range(LANES) for _, _, value in lines_of(self.store, lane)]

    def rows(self) -> int:
        return len(self.lines())

    def seen(self) -> int:
        """Number of records in the store or in its log."""
        messages = read_topic(self.conf.kafka, staged_topic(self.name, "lines"))
        staged = [msgspec.json.decode(each.value()) for each in messages if each.value() is not None]
        return len({each["number"] for each in (*staged, *self.lines())})

    def marked_ms(self, lanes: int = LANES) -> int:
        """The log time below which all that is staged will be visible."""
        messages = read_topic(self.conf.kafka, staged_topic(self.name, "lines"))
        headers = [(each.partition(), dict(each.headers())) for each in messages if each.value() is None]
        marks = {partition: int(found[MARK]) for partition, found in headers if MARK in found}
        assert len(marks) == lanes
        return min(marks.values())

    def drain(self) -> None:
        """Take what is staged into the store, while the job does not run."""
        settings = [f"--set={key}={value}" for key, value in self.settings.items()]
        assert run(["sinks", "drain", str(self.flow), *settings]) == 0

    def published_ms(self) -> int:
        """Published delivered time."""
        with ZooKeeperAccess.of(self.conf.zookeeper).store(self.name) as store:
            return (store.published() or 0) * self.conf.job.slack_ms


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Iterator[Program]:
    job = Program(tmp_path, kafka, zookeeper)
    yield job
    job.close()


def test_each_record_is_in_the_store_once_and_nothing_is_reported_before(job: Program) -> None:
    given = orders(4 * PART)
    process = job.start()
    job.produce(given[:PART])
    job.have(PART // 3, job.rows)
    job.kill()
    # What a killed job leaves is carried without Spark.
    job.drain()
    assert job.published_ms() == job.marked_ms()

    away = job.store / "away"
    away.touch()
    away_ms = time.time_ns() // 1_000_000
    process = job.start()
    job.produce(given[PART : 2 * PART])
    wait_until(lambda: job.seen() == 2 * PART, HANGS_S, "records are staged while the store is away")
    before = job.rows()
    time.sleep(3)
    assert job.published_ms() < away_ms
    assert job.rows() == before < 2 * PART
    away.unlink()
    job.have(2 * PART, job.rows)
    wait_until(lambda: job.published_ms() > away_ms, HANGS_S, "what is visible is published")

    # A stop waits for what is staged.
    slow = job.store / "slow"
    slow.touch()
    job.produce(given[2 * PART : 3 * PART])
    wait_until(lambda: job.seen() == 3 * PART, HANGS_S, "records are staged")
    assert job.rows() < 3 * PART
    before_ms = job.published_ms()
    wait_until(lambda: job.marked_ms() > before_ms, HANGS_S, "a later time is marked")
    process.terminate()
    assert process.wait(HANGS_S) == 0
    assert job.rows() == 3 * PART
    assert job.published_ms() > before_ms, "what a stop has made visible is published"

    # So it is after the job has got more lanes, of which no life has said anything.
    job.start()
    job.produce(given[3 * PART :])
    wait_until(lambda: job.seen() == 4 * PART, HANGS_S, "records are staged")
    job.kill()
    assert job.rows() < 4 * PART
    before_ms, marked_ms = job.published_ms(), job.marked_ms()
    assert before_ms < marked_ms
    job.grow(2 * LANES)
    assert job.marked_ms(2 * LANES) >= marked_ms
    job.drain()
    assert job.published_ms() == job.marked_ms(2 * LANES)
    flow: Any = load_flow(str(job.flow))
    order: Any = flow.calls[0].step.source.format.record
    due = flow.run_locally(orders=[order(**each) for each in given])["lines"]
    found = [(each["user"], each["number"], each["so_far"]) for each in job.lines()]
    assert sorted(found) == sorted((each.user, each.number, each.so_far) for each in due)


def during(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def test_a_job_with_an_end_ends_once_readers_of_the_store_see_all_of_it(spark: Spark, tmp_path: Path) -> None:
    """Its lanes' last mark lies before the end of time; another start has nothing to add, nor do more lanes."""
    topic, conf = spark.kafka.topic("orders"), spark.conf(job__lanes=LANES)
    spark.kafka.produce(topic, [{"user": f"u{n % 5}", "number": n} for n in range(100)])
    flow = lt.Flow(unique("ended"))
    orders_ = flow.read("orders", lt.kafka(topic, lt.json(Order), stop="now"))
    orders_.key_by("user").write("lines", Lines(str(tmp_path), Order, mark_every_ms=7_000))
    (tmp_path / "away").touch()
    for lanes in (LANES, LANES, 2 * LANES):
        if lanes > LANES:
            with ZooKeeperAccess.of(conf.zookeeper).store(flow.name) as store:
                frozen = store.record()
                assert frozen is not None
                grow(store, frozen, lanes, conf, lambda _: None)
        job = Job.start(flow, replace(conf, job=replace(conf.job, lanes=lanes)))
        try:
            job.wait_for_workers(HANGS_S)
            if (tmp_path / "away").exists():
                job.wait(during(5))
                assert not job.finished, "nothing is in the store"
                (tmp_path / "away").unlink()
            job.wait(during(HANGS_S))
            assert job.finished
        finally:
            job.stop()
        rows = [msgspec.json.decode(value) for lane in range(LANES) for _, _, value in lines_of(tmp_path, lane)]
        assert sorted(each["number"] for each in rows) == list(range(100))


def test_r24_no_source_is_read_while_the_store_is_too_far_behind(spark: Spark, tmp_path: Path) -> None:
    topic, flow, made = spark.kafka.topic("orders"), lt.Flow(unique("behind")), 0
    orders_ = flow.read("orders", lt.kafka(topic, lt.json(Order)))
    orders_.key_by("user").write("lines", Lines(str(tmp_path), Order, mark_every_ms=100))

    def produce(count: int) -> None:
        nonlocal made
        spark.kafka.produce(topic, [{"user": f"u{n % 5}", "number": n} for n in range(made, made + count)])
        made += count

    def reads(job: Job) -> tuple[bool, int]:
        """True if the source is read, and how many records were."""
        found = [each.gauges for each in job.state().workers if each.gauges is not None]
        fronts = [each for each in found if each.front is not None]
        return all(each.front and each.front.pulling for each in fronts), sum(each.records_in for each in fronts)

    def rests(job: Job) -> bool:
        produce(50)
        return not reads(job)[0]

    (tmp_path / "away").touch()
    # Each epoch's task sends one message that is not answered.
    with spark.job(flow, job__lanes=LANES, job__max_staged_bytes=100_000, epoch__duration_s=600) as job:
        produce(50)
        wait_until(lambda: reads(job)[1], HANGS_S, "the source is read")
        wait_until(lambda: rests(job), HANGS_S, "the source is read no more")
        produce(50)
        time.sleep(3)
        before = reads(job)
        produce(1_000)
        time.sleep(5)
        assert reads(job) == before == (False, before[1])
        assert before[1] < made
        (tmp_path / "away").unlink()

        def there() -> bool:
            return sum(len(lines_of(tmp_path, lane)) for lane in range(LANES)) == made

        wait_until(there, HANGS_S, "all is in the store")
        wait_until(lambda: reads(job) == (True, made), HANGS_S, "the source is read again")
