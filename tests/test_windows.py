"""Windows of time on real Kafka: they close on a topic that has gone quiet, and over a life that was killed."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unique
from tests.judging import Judge, committed, produce
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.cli.snapshot import take
from lowtide.driver.job import Job
from lowtide.errors import LifeEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conftest import Spark

    from lowtide.conf import Conf

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

LANES = 2
WAIT_MS = 500


@dataclass(frozen=True)
class Click:
    user: str
    page: str
    number: int
    at: datetime


@dataclass(frozen=True)
class Visits:
    page: str
    window_start: datetime
    clicks: int
    last: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Total:
    window_start: datetime
    clicks: int | None


@dataclass(frozen=True)
class Sitting:
    user: str
    began: datetime
    ended: datetime
    numbers: tuple[int, ...]


def sitting(window: lt.Window, clicks: tuple[Click, ...]) -> list[Sitting]:
    return [Sitting(clicks[0].user, window.start, window.end, tuple(click.number for click in clicks))]


@dataclass(frozen=True)
class Topics:
    clicks: str
    late: str
    visits: str
    totals: str
    sittings: str

    @classmethod
    def make(cls, spark: Spark) -> Topics:
        """The source has a partition that never gets anything."""
        sinks = [spark.kafka.topic(name, LANES) for name in ("late", "visits", "totals", "sittings")]
        return cls(spark.kafka.topic("clicks", 3), *sinks)

    def flow(self, name: str) -> lt.Flow:
        """Windows, windows of these that close at the same tick, sessions, and what is late for any."""
        flow = lt.Flow(name)
        clicks = flow.read("clicks", lt.kafka(self.clicks, lt.json(Click)))
        clock = lt.event_time("at", wait=lt.millis(WAIT_MS))
        by_page = clicks.key_by("page").window("visits", lt.tumbling(lt.seconds(4)), time=clock)
        visits = by_page.aggregate(
            Visits, clicks=lt.agg.count(), last=lt.agg.latest("user"), numbers=lt.agg.collect("number")
        )
        visits.write("visits", lt.kafka(self.visits, lt.json(Visits), key="page"))
        start = visits.key_by("window_start")
        starts = lt.event_time("window_start", wait=lt.millis(WAIT_MS), late="drop")
        totals = start.window("totals", lt.tumbling(lt.seconds(4)), time=starts)
        totals.aggregate(Total, clicks=lt.agg.sum("clicks")).write("totals", lt.kafka(self.totals, lt.json(Total)))
        by_user = clicks.key_by("user").window("sittings", lt.session(lt.seconds(6)), time=clock)
        by_user.apply(sitting).write("sittings", lt.kafka(self.sittings, lt.json(Sitting), key="user"))
        late = by_page.late.merge(by_user.late, name="late")
        late.write("late-clicks", lt.kafka(self.late, lt.json(Click)))
        return flow

    def click(self, conf: Conf, dice: random.Random, numbers: Iterable[int], partition: int) -> None:
        """Clicks of now, of which some were long under way."""
        now = datetime.now(UTC)
        stamped: list[tuple[bytes | lt.Message, int | None]] = []
        for number in numbers:
            came = now + timedelta(milliseconds=number % 100)
            at = came - timedelta(milliseconds=dice.choice([0, 1, 50, 300, 20_000] if number % 7 == 0 else [0, 40]))
            click = Click(f"user-{dice.randrange(9)}", f"page-{dice.randrange(7)}", number, at)
            (value,) = lt.json(Click).encode([click])
            assert value is not None
            stamped.append((value, int(came.timestamp() * 1000)))
        produce(conf, self.clicks, {partition: stamped})


def test_windows_close_on_a_topic_that_has_gone_quiet_and_over_a_kill(spark: Spark) -> None:
    """One partition falls silent, one was never written to; then a worker is killed, and the whole topic is silent."""
    topics, dice = Topics.make(spark), random.Random(7)
    conf = spark.conf(job__parallelism=2, job__lanes=LANES)
    flow = topics.flow(unique("windows"))
    topics.click(conf, dice, range(20), partition=1)
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        for turn in range(1, 5):
            topics.click(conf, dice, range(100 * turn, 100 * turn + 100), partition=0)
            job.wait(after(1.0))
        job.wait(lambda: not committed(conf, topics.visits))
        topics.click(conf, dice, range(500, 600), partition=0)
        job.wait(after(1.0))
        saved = take(job.client(), flow.name, None, limit_s=HANGS_S)
        topics.click(conf, dice, range(600, 700), partition=0)
        job.wait(after(0.3))
        os.kill(next(each["pid"] for each in job.status()["workers"] if each["worker"] == "1/0"), signal.SIGKILL)
        with pytest.raises(LifeEnded):
            job.wait(after(60.0))
    finally:
        job.stop()
    assert saved.rows > 0, "windows were open"
    said: list[str] = []
    job = Job.start(flow, conf, said.append)
    try:
        assert any(f"beginning from commit {saved.id}" in each for each in said), said
        assert Judge(flow, conf).right() > 50
        for topic in (topics.late, topics.visits, topics.totals, topics.sittings):
            assert committed(conf, topic)
    finally:
        job.stop()


def after(seconds: float) -> Callable[[], Any]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until
