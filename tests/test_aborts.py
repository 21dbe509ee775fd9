"""A record that kills a life at its place, as users' tests have it, on the real thing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unique
from tests.judging import Judge
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.driver.job import Job
from lowtide.errors import LifeEnded
from lowtide.testing import abort_once

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]


@dataclass(frozen=True)
class Order:
    user: str
    amount: int


def is_abort(order: Order) -> bool:
    return order.user == "ABORT"


def add(total: int, order: Order) -> tuple[int, Order]:
    return total + order.amount, Order(order.user, total + order.amount)


def test_a_life_is_killed_at_a_record_and_the_next_one_goes_on(spark: Spark, tmp_path: Path) -> None:
    source, sink = spark.kafka.topic("orders", 1), spark.kafka.topic("out", 1)
    marker = tmp_path / "aborted"
    flow = lt.Flow(unique("aborts"))
    orders = flow.read("orders", lt.kafka(source, lt.json(Order), stop="now"))
    passed = orders.filter(abort_once(is_abort, marker), name="abort")
    passed.key_by("user").scan("total", add, 0).write("out", lt.kafka(sink, lt.json(Order), key="user"))
    log = [Order("ABORT" if number == 250 else f"u{number % 7}", number) for number in range(500)]
    spark.kafka.produce(source, [{"user": order.user, "amount": order.amount} for order in log])
    conf = spark.conf(job__lanes=1, job__parallelism=1)
    job = Job.start(flow, conf)
    try:
        with pytest.raises(LifeEnded):
            _finish(job)
    finally:
        job.stop()
    assert marker.exists()
    job = Job.start(flow, conf)
    try:
        _finish(job)
        assert job.finished
    finally:
        job.stop()
    assert Judge(flow, conf).right() == 499
    found = [Order(**each) for each in spark.kafka.records(sink, 499)]
    assert found == flow.run_locally(orders=log)["out"]


def _finish(job: Job) -> None:
    deadline = time.monotonic() + HANGS_S
    job.wait_for_workers(HANGS_S)
    job.wait(lambda: time.monotonic() < deadline)
