"""Kafka's delivery as a store of the public contract: what a job does at the start of a life and in a host."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from lowtide.api import Flow
from lowtide.conf import Conf
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.driver.homes import Homes
from lowtide.driver.refusals import fence_ends_life
from lowtide.flow.formats.endpoints import KafkaSink, kafka
from lowtide.flow.formats.formats import json
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.sinks.contract import Encoder, JobSinks, Life, Packet, Stored
from lowtide.sinks.kafka.claimant import Claimant
from lowtide.sinks.kafka.claims import claim, transactional_id
from lowtide.sinks.kafka.java_transactions import JavaTransactions
from lowtide.sinks.kafka.lasts import open_lasts, read_lasts, topic_of
from lowtide.sinks.kafka.transactions import Transactions
from lowtide.testing.sinks import Line
from lowtide_snapshots.job.store import JobStore

MAX_RECORD_BYTES = 1_000_000
HOSTS: Counter[str] = Counter()
"""The hosts of each job that run in this process: each has transactional ids of its own, the next one those again."""


@dataclass(frozen=True)
class KafkaLines(KafkaSink):
    """A topic with a partition for each lane."""

    brokers: str = ""
    zookeeper: str = ""
    version: str = "v1"

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return where hosts find the brokers."""
        return {"bootstrap.servers": self.brokers}

    def encoder(self, vertex: Vertex[Any], slack_ms: int) -> Encoder:
        """Return the encoder of all sinks in Kafka."""
        return SinkEncoder(vertex, slack_ms)

    def home(self, job: JobSinks, life: Life) -> KafkaHome:
        """Return Kafka and ZooKeeper as the start of a life sees them."""
        return KafkaHome(self, job, life)

    def way(self, job: JobSinks, life: Life) -> KafkaWay:
        """Return the way of a host."""
        return KafkaWay(self, job, life)

    def conf(self) -> Conf:
        """Return the job's conf."""
        return Conf.load(None, {"kafka.bootstrap_servers": self.brokers, "zookeeper.hosts": self.zookeeper})


def plan_of(sink: KafkaLines, job: str) -> Plan:
    """Return the plan of the job, which has this sink alone."""
    flow = Flow(job)
    flow.read("lines", kafka("lines", json(Line))).key_by("number").write("out", sink)
    return compile_flow(flow, parallelism=1)


def ids_of(job: JobSinks) -> list[str]:
    """Return the transactional ids of all hosts that the job may have at once."""
    return [transactional_id(job.job, 1, host) for host in range(job.lanes)]


class KafkaHome:
    """Kafka and ZooKeeper at the start of a life, which claims as a driver does."""

    def __init__(self, sink: KafkaLines, job: JobSinks, life: Life) -> None:
        self._sink, self._job, self._life, self._conf = sink, job, life, sink.conf()
        self._place = JobStore(sink.zookeeper, job.job).open()

    def open(self, known: str | None) -> str:
        """Begin the life, unless it has begun, and make the lasts topic if it is the first."""
        if self._place.incarnation() < self._life.incarnation:
            self._place.take_lease("test", self._life.limit_s, lambda _: None)
            while self._place.raise_incarnation() < self._life.incarnation:
                pass
        return open_lasts(self._conf.kafka, self._job.job, known, self._job.generation)

    def claim(self) -> None:
        """Fence every earlier life, and begin a new output generation if it is one."""
        with fence_ends_life():
            plan = plan_of(self._sink, self._job.job)
            homes = Homes(self._place, plan, self._conf, self._life.incarnation, lambda _: None)
            durable = homes.claim({*ids_of(self._job)})
            if homes.generation < self._job.generation:
                homes.deliver_again(durable)

    def read(self) -> Stored:
        """Return what the lasts topic says."""
        topic = topic_of(self._job.job, self._job.generation)
        durable = read_lasts(self._conf.kafka, topic, self._life.limit_s)
        return Stored(durable.last, durable.floors)

    def close(self) -> None:
        """Give up the session, and the lease with it."""
        self._place.close()


class KafkaWay:
    """A host, from the start of its life on: it claims and reads as the driver did, for it may be the life's second."""

    def __init__(self, sink: KafkaLines, job: JobSinks, life: Life) -> None:
        self._sink, self._job, self._life = sink, job, life
        self._id = ids_of(job)[HOSTS[job.job]]
        HOSTS[job.job] += 1
        self._place = JobStore(sink.zookeeper, job.job).open()
        self._way: Transactions | JavaTransactions | None = None

    @property
    def end_by(self) -> float:
        """When whatever is under way has to be given up."""
        assert self._way is not None, "it is open"
        return self._way.end_by

    @end_by.setter
    def end_by(self, at: float) -> None:
        assert self._way is not None, "it is open"
        self._way.end_by = at

    def open(self) -> None:
        """Claim, read where the lanes are, and get ready."""
        kafka, lasts = self._sink.conf().kafka, topic_of(self._job.job, self._job.generation)
        claim(kafka, [self._id], self._life.limit_s)
        durable = read_lasts(kafka, lasts, self._life.limit_s)
        marks = {lane: key.packed() for lane, key in durable.last.items()}
        claimant = Claimant(self._id, lasts, self._life.incarnation, self._check, marks)
        limits = claimant, int(1000 * self._life.limit_s), MAX_RECORD_BYTES
        if self._sink.version == "v2":
            self._way = JavaTransactions(self._job.settings, *limits)
        else:
            self._way = Transactions({**self._job.settings, "log_level": 0}, *limits)
        self._way.open()

    def deliver(self, packets: Sequence[Packet]) -> None:
        """Deliver in one transaction."""
        assert self._way is not None, "it is open"
        self._way.deliver(packets)

    def close(self) -> None:
        """Abort what is open."""
        HOSTS[self._job.job] -= 1
        self._place.close()
        if self._way is not None:
            self._way.close()
        # A host ends with its process; here its clients, which are cycles, would stay, each with its threads.
        self._way = None
        gc.collect()

    def _check(self) -> None:
        self._life.check()
        with fence_ends_life():
            self._place.check(self._life.incarnation)


def committed(brokers: str, topic: str, limit_s: float) -> Iterator[bytes]:
    """Yield what readers of committed messages find, up to what is there now.

    Kafka answers a commit before its markers are written, so this waits for the ends of open transactions, a bounded
    time: nobody may end one.
    """
    # fmt: off
    with closing(Consumer({"bootstrap.servers": brokers, "group.id": "none", "enable.auto.commit": False,
                           "isolation.level": "read_committed", "enable.partition.eof": True})) as consumer:
        # fmt: on
        ends = _ends(brokers, [*consumer.list_topics(topic, limit_s).topics[topic].partitions], topic, limit_s)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        positions = dict.fromkeys(ends, 0)
        deadline = time.monotonic() + limit_s
        while any(positions[partition] < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, f"a transaction stays open: {positions} of {ends}"
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield message.value() or b""
            elif error.code() != KafkaError._PARTITION_EOF:
                continue
            positions[message.partition() or 0] = (message.offset() or 0) + (error is None)


def _ends(brokers: str, partitions: list[int], topic: str, limit_s: float) -> dict[int, int]:
    """Return the offsets after the last message of each partition, committed or not."""
    client: Any = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in partitions}  # type: ignore[no-untyped-call]
    isolation, deadline = IsolationLevel.READ_UNCOMMITTED, time.monotonic() + limit_s
    while True:
        left_s = max(0.1, deadline - time.monotonic())
        try:
            answers = client.list_offsets(wanted, request_timeout=left_s, isolation_level=isolation)
            return {each.partition: answer.result().offset for each, answer in answers.items()}
        except KafkaException:
            # A topic that has just been made has no leaders yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
