"""Snapshots on the real thing: taken under load, committed, recovered from; output stays exactly once (R14 to R16)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.shop import Load, Shop

from lowtide.control_client import ControlClient
from lowtide.service.taking import SnapshotView
from lowtide.spark.job import Job

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
TAKEN_WITHIN_S = 30.0


def take(job: Job, name: str | None = None, *, commit: bool = True) -> SnapshotView:
    """Take a snapshot and wait for what becomes of it."""
    client = ControlClient(job.control, job.token)
    asked = client.take_snapshot(name, commit=commit)
    return until_over(client, asked.id, "committed" if commit else "sealed")


def until_over(client: ControlClient, id_: str, phase: str) -> SnapshotView:
    deadline = time.monotonic() + TAKEN_WITHIN_S
    while True:
        (view,) = [each for each in client.snapshots() if each.id == id_]
        if view.phase in (phase, "failed"):
            return view
        assert time.monotonic() < deadline, f"{view} is not {phase} after {TAKEN_WITHIN_S:g} s"
        time.sleep(0.05)


def after(seconds: float) -> Callable[[], Any]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def delivering(job: Job) -> Callable[[], Any]:
    """For `Job.wait`: go on until some output has come."""
    return lambda: job.status()["totals"]["records_out"] < 300


def test_a_job_goes_on_from_its_last_commit(spark: Spark) -> None:
    shop = Shop.open("commit", spark.kafka, spark.settings(), letters=2)
    with shop.running() as job, Load(shop, per_s=500) as load:
        job.wait(delivering(job))
        first = take(job)
        assert (first.phase, first.why) == ("committed", "")
        assert first.rows > 0
        job.wait(after(2))
        second = take(job)
        assert (second.phase, second.why) == ("committed", "")
        job.wait(after(1))
        assert load.written > 1000
    said: list[str] = []
    job = Job.start(shop.flow(), shop.conf, said.append)
    try:
        assert any(f"beginning from commit {second.id}" in each for each in said), said
        with Load(shop, first=100_000, per_s=300):
            job.wait(after(3))
        assert shop.judge.right()
        read = job.status()["totals"]["records_in"]
    finally:
        job.stop()
    assert shop.judge.right()
    assert read < load.written, "it has not read all of it again"
