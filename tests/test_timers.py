"""Timers on real Kafka: keys are called on topics that have gone quiet, and over a life that was killed in between."""

from __future__ import annotations

import os
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


@dataclass(frozen=True)
class Order:
    id: str
    number: int
    remind: datetime


@dataclass(frozen=True)
class Payment:
    order: str
    number: int


@dataclass(frozen=True)
class Waiting:
    """An order that is reminded of again and again, a second later each time."""

    order: str = ""
    reminders: int = 0
    until: datetime | None = None


@dataclass(frozen=True)
class Reminder:
    order: str
    number: int
    at: datetime | None


def on_event(waiting: Waiting, event: Order | Payment) -> tuple[Waiting, list[Reminder]]:
    match event:
        case Order():
            return Waiting(event.id, 0, event.remind), []
        case Payment():
            return Waiting(), [Reminder(event.order, -waiting.reminders, None)]


def deadline(waiting: Waiting) -> datetime | None:
    return waiting.until


def remind(waiting: Waiting, now: datetime) -> tuple[Waiting, list[Reminder]]:
    after = Waiting(waiting.order, waiting.reminders + 1, now + lt.seconds(1)) if waiting.reminders < 2 else Waiting()
    return after, [Reminder(waiting.order, waiting.reminders + 1, now)]


@dataclass(frozen=True)
class Topics:
    orders: str
    payments: str
    reminders: str

    def flow(self, name: str) -> lt.Flow:
        flow = lt.Flow(name)
        orders = flow.read("orders", lt.kafka(self.orders, lt.json(Order))).key_by("id")
        payments = flow.read("payments", lt.kafka(self.payments, lt.json(Payment))).key_by("order")
        both = orders.connect(payments)
        reminders = both.flat_scan("unpaid", on_event, Waiting(), timer=deadline, on_timer=remind)
        reminders.write("reminders", lt.kafka(self.reminders, lt.json(Reminder), key="order"))
        return flow

    def order(self, conf: Conf, numbers: Iterable[int], after_s: float) -> None:
        """Orders of now that are reminded of so long after."""
        now = datetime.now(UTC)
        remind = now + timedelta(seconds=after_s)
        orders = [Order(f"order-{number}", number, remind + timedelta(milliseconds=number)) for number in numbers]
        messages: list[tuple[bytes | lt.Message, int | None]] = []
        for value in lt.json(Order).encode(orders):
            assert value is not None
            messages.append((value, int(now.timestamp() * 1000)))
        produce(conf, self.orders, {0: messages})

    def pay(self, conf: Conf, numbers: Iterable[int]) -> None:
        now = int(datetime.now(UTC).timestamp() * 1000)
        values = lt.json(Payment).encode([Payment(f"order-{number}", number) for number in numbers])
        produce(conf, self.payments, {0: [(value, now) for value in values if value is not None]})


def test_timers_fire_on_topics_that_are_quiet_and_over_a_kill_between_setting_and_firing(spark: Spark) -> None:
    """Keys ask in one life, below its snapshot and above it; that life is killed, and they are called in the next."""
    topics = Topics(spark.kafka.topic("orders", 2), spark.kafka.topic("payments", 1), spark.kafka.topic("out", LANES))
    conf = spark.conf(job__parallelism=2, job__lanes=LANES)
    flow = topics.flow(unique("timers"))
    topics.order(conf, range(20), after_s=0.5)
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        topics.order(conf, range(100, 120), after_s=0.5)
        job.wait(lambda: not committed(conf, topics.reminders))
        topics.order(conf, range(200, 260), after_s=60.0)
        topics.pay(conf, range(200, 210))
        job.wait(after(1.0))
        saved = take(job.client(), flow.name, None, limit_s=HANGS_S)
        topics.order(conf, range(300, 320), after_s=60.0)
        topics.pay(conf, range(210, 220))
        job.wait(after(0.3))
        os.kill(next(each["pid"] for each in job.status()["workers"] if each["worker"] == "1/0"), signal.SIGKILL)
        with pytest.raises(LifeEnded):
            job.wait(after(60.0))
    finally:
        job.stop()
    assert saved.rows >= 50, "keys were asking"
    before = committed(conf, topics.reminders)
    said: list[str] = []
    job = Job.start(flow, conf, said.append)
    try:
        assert any(f"beginning from commit {saved.id}" in each for each in said), said
        # Nothing is written any more: it is time alone that calls 60 keys, thrice each.
        job.wait(lambda: committed(conf, topics.reminders) < before + 180)
        assert Judge(flow, conf).right() > 200
    finally:
        job.stop()


def after(seconds: float) -> Callable[[], Any]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until
