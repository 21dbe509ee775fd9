"""Loops whose records change their key, on real Kafka: between two processes, and over a life that was killed."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unique
from tests.judging import Judge, committed, produce
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.driver.job import Job
from lowtide.errors import LifeEnded
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.own_topics import loop_topics

if TYPE_CHECKING:
    from tests.conftest import Spark

    from lowtide.conf import Conf

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

LANES = 2
EDGES = 120


@dataclass(frozen=True)
class Hint:
    """A hint to a node: a label, and perhaps a neighbour; of itself in the end."""

    node: int
    label: int
    neighbour: int


@dataclass(frozen=True)
class Node:
    label: int = -1
    heard: int = 0
    neighbours: tuple[int, ...] = ()


@dataclass(frozen=True)
class Member:
    node: int
    label: int
    heard: int


def both(hint: Hint) -> list[Hint]:
    return [hint, Hint(hint.neighbour, hint.neighbour, hint.node)]


def hear(node: Node, hint: Hint) -> tuple[Node, list[Hint]]:
    """Smaller labels are passed on. A hint to oneself says how many hints came before: it hangs on the order."""
    label = hint.label if node.label < 0 else min(node.label, hint.label)
    is_new = hint.neighbour >= 0 and hint.neighbour not in node.neighbours
    neighbours = (*node.neighbours, hint.neighbour) if is_new else node.neighbours
    hinted = neighbours if label != node.label else (hint.neighbour,) if is_new else ()
    own = [] if label == node.label else [Hint(hint.node, label, -2 - node.heard)]
    return Node(label, node.heard + 1, neighbours), [*(Hint(each, label, -1) for each in hinted), *own]


def is_on_its_way(hint: Hint) -> bool:
    return hint.neighbour >= -1


def member(hint: Hint) -> Member:
    return Member(hint.node, hint.label, -2 - hint.neighbour)


@dataclass(frozen=True)
class Topics:
    edges: str
    members: str
    letters: str

    def flow(self, name: str) -> lt.Flow:
        flow = lt.Flow(name, dead_letters=lt.kafka(self.letters, lt.raw()))
        edges = flow.read("edges", lt.kafka(self.edges, lt.json(Hint)))
        looped = edges.flat_map(both).loop(
            "spread", lambda hints: hints.key_by("node").flat_scan("nodes", hear, Node()), is_on_its_way, limit_turns=30
        )
        looped.map(member).write("members", lt.kafka(self.members, lt.json(Member), key="node"))
        return flow

    def add(self, conf: Conf, dice: random.Random, nodes: range) -> None:
        """Edges among these nodes, in both partitions, at times that are mixed."""
        now_ms = int(time.time() * 1000)
        for partition in range(2):
            ends = [(dice.choice(nodes), dice.choice(nodes)) for _ in range(EDGES // 2)]
            values = [b'{"node":%d,"label":%d,"neighbour":%d}' % (one, one, other) for one, other in ends]
            produce(conf, self.edges, {partition: [(value, now_ms + dice.randrange(40)) for value in values]})


def through_topic(spark: Spark, conf: Conf, flow: lt.Flow) -> int:
    """Number of frames that have gone through the loop's topic."""
    (topic,) = loop_topics(compile_job(flow, conf)).values()
    return len(spark.kafka.messages(topic, 0, within_s=5.0))


def test_records_go_round_between_two_processes_and_a_killed_life_goes_on(spark: Spark) -> None:
    """A worker is killed while edges come; the next life, in ordered mode, finds the old one's frames in the topic."""
    topics = Topics(spark.kafka.topic("edges", 2), spark.kafka.topic("members", LANES), spark.kafka.topic("letters"))
    settings = {"job__parallelism": 2, "job__lanes": LANES, "worker__processes": 2}
    conf = spark.conf(**settings)
    flow, dice = topics.flow(unique("loops")), random.Random(7)
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        pids = {each["worker"]: each["pid"] for each in job.status()["workers"]}
        assert pids["1/0"] != pids["1/1"], "they talk through Kafka"
        topics.add(conf, dice, range(40))
        job.wait(lambda: not committed(conf, topics.members))
        assert through_topic(spark, conf, flow)
        topics.add(conf, dice, range(30, 80))
        os.kill(pids["1/1"], signal.SIGKILL)
        until = time.monotonic() + HANGS_S
        with pytest.raises(LifeEnded):
            job.wait(lambda: time.monotonic() < until)
    finally:
        job.stop()
    job = Job.start(flow, spark.conf(**settings, job__grouping="ordered"))
    try:
        topics.add(conf, dice, range(60, 100))
        assert Judge(flow, conf).right() > 100
    finally:
        job.stop()
