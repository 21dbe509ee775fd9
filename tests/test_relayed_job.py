"""A job whose hosts share one connection to the tracker: it lives on without its relay or tracker (R5, R10)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.shop import Load, Shop
from tests.test_exactly_once import until_delivered
from tests.waiting import HANGS_S, wait_until

from tests.driver import below_with, runs, view

if TYPE_CHECKING:
    from tests.conftest import Spark

    from lowtide.driver.job import Job

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
HOSTS = 3


def test_a_job_lives_on_without_its_relay_and_without_its_tracker(spark: Spark) -> None:
    settings = {"tracker.relay": True, "worker.processes": HOSTS}
    shop = Shop.open("relayed", spark.kafka, spark.settings() | settings, letters=2)
    with shop.running() as job:
        with Load(shop):
            job.wait(until_delivered(job, 200))
            killed = relay_of(job)
            assert connections_to(view(job)["tracker"]["pid"]) <= 3, "of the service, of its sources, of the relay"
            os.kill(killed, signal.SIGKILL)
            job.wait(until_delivered(job, view(job)["totals"]["delivered"] + 200))
            assert relay_of(job) != killed
            tracker = view(job)["tracker"]
            os.kill(tracker["pid"], signal.SIGKILL)
            job.wait(lambda: view(job)["tracker"]["era"] <= tracker["era"])
            job.wait(until_delivered(job, view(job)["totals"]["delivered"] + 200))
            assert view(job)["tracker"]["pid"] != tracker["pid"]
        assert shop.judge.right()
        assert view(job)["incarnation"] == job.incarnation
        last = relay_of(job)
    wait_until(lambda: not runs(last), HANGS_S, "the relay goes with its life")


def relay_of(job: Job) -> int:
    """The one child of the fork server that is no host."""
    forked = {pid: psutil.Process(pid) for pid in below_with(os.getpid(), "-m lowtide.worker.forkserver")}
    (server,) = [each for each in forked.values() if each.ppid() not in forked]
    hosts = {worker["pid"] for worker in job.status()["workers"]}
    (found,) = {each.pid for each in server.children()} - hosts
    return found


def connections_to(pid: int) -> int:
    """How many connections a process has at its door."""
    inodes = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sum(f"socket:[{line[6]}]" in inodes and line[5] == "03" and len(line) > 7 for line in lines)
