"""Branches on real Kafka: one whose source stands holds back only what it feeds."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unique
from tests.judging import Judge, committed, produce
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.driver.job import Job

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

LANES = 2
RECORDS = 60
HELD_S = 2 * HANGS_S
"""Time that a call of the slow branch waits at most; longer than it takes the fast one to be done."""


@dataclass(frozen=True)
class Item:
    key: str
    number: int


def counted(state: int, item: Item) -> tuple[int, Item]:
    return state + 1, Item(item.key, state + 1)


class Gate:
    """A function that does not return before a file is there.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, state: int, item: Item) -> tuple[int, Item]:
        """Count, once the gate is open."""
        deadline = time.monotonic() + HELD_S
        while not os.path.exists(self._path) and time.monotonic() < deadline:
            time.sleep(0.01)
        return counted(state, item)


def test_a_slow_branch_does_not_hold_another(spark: Spark) -> None:
    """Both have records of one source; the slow one is a level longer."""
    items, fast, slow, dead = (spark.kafka.topic(name, LANES) for name in ("items", "fast", "slow", "dead"))
    # A process for each worker: one that stands must stand for no other.
    conf = spark.conf(job__parallelism=2, job__lanes=LANES, worker__processes=6)
    flow = lt.Flow(unique("branches"), dead_letters=lt.kafka(dead, lt.raw()))
    read = flow.read("items", lt.kafka(items, lt.json(Item)))
    read.key_by("key").scan("fast", counted, 0).write("fast-out", lt.kafka(fast, lt.json(Item)))
    behind = read.key_by("number").scan("once", counted, 0).key_by("key")
    gate = spark.folder / unique("gate")
    behind.scan("slow", Gate(str(gate)), 0).write("slow-out", lt.kafka(slow, lt.json(Item)))
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        now_ms = int(time.time() * 1000)
        values = [b'{"key":"k%d","number":%d}' % (number % 5, number) for number in range(RECORDS)]
        produce(conf, items, {0: [(value, now_ms + place) for place, value in enumerate(values)]})
        deadline = time.monotonic() + HANGS_S
        job.wait(lambda: committed(conf, fast) < RECORDS and time.monotonic() < deadline)
        assert committed(conf, fast) == RECORDS
        assert committed(conf, slow) == 0, "it has not begun"
        gate.touch()
        assert Judge(flow, conf).right() == 2 * RECORDS
    finally:
        job.stop()
