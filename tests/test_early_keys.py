"""Early keys on real Kafka: a key whose function stands holds back the lanes of its own worker, and no other (F5)."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unique
from tests.judging import Judge, produce
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.driver.job import Job
from lowtide.flow.plan.compiler import compile_job
from lowtide.local.oracle import read_output
from lowtide_snapshots.keys.hashing import hash_unit

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

LANES = 2
KEYS = 12
RECORDS = 120
SLOW = "k0"
HELD_S = 2 * HANGS_S
"""Time that a call of the slow key waits at most; longer than it takes the others to be done."""


@dataclass(frozen=True)
class Item:
    key: str
    number: int


class Gate:
    """A function that does not return for one key before a file is there.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, state: int, item: Item) -> tuple[int, Item]:
        """Count, once the gate is open."""
        deadline = time.monotonic() + HELD_S
        while item.key == SLOW and not os.path.exists(self._path) and time.monotonic() < deadline:
            time.sleep(0.01)
        return state + 1, Item(item.key, state + 1)


def test_a_key_that_stands_holds_back_its_own_lane_alone(spark: Spark) -> None:
    """Each worker has a lane and a process; what is delivered in the end is what it would be without early keys."""
    items, out, dead = spark.kafka.topic("items", 1), spark.kafka.topic("out", LANES), spark.kafka.topic("dead", 1)
    conf = spark.conf(job__parallelism=LANES, job__lanes=LANES, job__early_keys=True, worker__processes=LANES + 1)
    flow = lt.Flow(unique("early-keys"), dead_letters=lt.kafka(dead, lt.raw()))
    gate = spark.folder / unique("gate")
    keyed = flow.read("items", lt.kafka(items, lt.json(Item))).key_by("key")
    keyed.scan("gated", Gate(str(gate)), 0).write("out", lt.kafka(out, lt.json(Item)))
    plan = compile_job(flow, conf)
    lane_of = {f"k{key}": int(plan.lane_of_unit()[hash_unit([f"k{key}"], plan.units)]) for key in range(KEYS)}
    due = Counter(lane_of[f"k{number % KEYS}"] for number in range(RECORDS))
    assert len(due) == LANES, "both lanes have keys"
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        now_ms = int(time.time() * 1000)
        values = [b'{"key":"k%d","number":%d}' % (number % KEYS, number) for number in range(RECORDS)]
        produce(conf, items, {0: [(value, now_ms + place) for place, value in enumerate(values)]})
        deadline = time.monotonic() + HANGS_S

        def given() -> dict[int, int]:
            return {lane: len(sent) for lane, sent in read_output(conf.kafka, out).items()}

        free = 1 - lane_of[SLOW]
        job.wait(lambda: given().get(free, 0) < due[free] and time.monotonic() < deadline)
        assert given().get(free, 0) == due[free], "all of the other lane, while the slow key stands"
        assert given().get(lane_of[SLOW], 0) == 0, "it has not begun"
        gate.touch()
        assert Judge(flow, conf).right() == RECORDS
    finally:
        job.stop()
