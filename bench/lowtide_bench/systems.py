"""Systems to measure between the two topics: the bare loop, or a flow on Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lowtide.conf import Conf
from lowtide.driver.job import Job
from lowtide.jobs.jvm import end_jvm
from lowtide.status.control_client import ControlClient
from lowtide_bench import hops
from lowtide_bench.child import Child
from lowtide_bench.epochs import epoch_ends_ns
from lowtide_bench.flows import FLOWS, Make, records_of
from lowtide_bench.processes import command, descendants, parents
from lowtide_bench.record import Records

JVM = "org.apache.spark.deploy.SparkSubmit"
JVM_END_LIMIT_S = 15.0


@dataclass(frozen=True, slots=True)
class Way:
    """Path of the records: two topics of one Kafka, with the same number of partitions.

    Attributes:
        flow: The flow that the records are for.
        passed: Whether records come out as they went in.
        kafka: The bootstrap servers.
        source: The topic to send to.
        sink: The topic to read results from.
        partitions: Partitions of each topic.
    """

    flow: str
    passed: bool
    kafka: str
    source: str
    sink: str
    partitions: int

    @property
    def records(self) -> Records:
        """The records, recreated."""
        return records_of(self.flow, passed=self.passed)

    @property
    def task(self) -> dict[str, object]:
        """Return the arguments of a process that sends the records or reads them, except the topic."""
        return {"flow": self.flow, "passed": self.passed, "kafka": self.kafka, "partitions": self.partitions}


class System(Protocol):
    """Something that passes records on from one topic to another."""

    def check(self) -> None:
        """Raise the error that ended it, if it has ended."""

    def hops(self) -> Mapping[str, Mapping[int, int]]:
        """Return what its own histograms have counted so far, by hop; nothing if it has none."""
        return {}

    def epoch_ends_ns(self) -> list[int]:
        """Return the end times of its recent epochs; nothing if it has none, or they are unknown."""
        return []

    def client(self) -> ControlClient | None:
        """Return the control API of its current life; None if there is none."""
        return None

    def stop(self) -> None:
        """Stop it and all its processes."""


class Bare(System):
    """The bare librdkafka loop."""

    def __init__(self, way: Way) -> None:
        task = {"kafka": way.kafka, "from": way.source, "to": way.sink, "partitions": way.partitions}
        self._child = Child("lowtide_bench.bare", task)
        self._source: dict[int, int] = {}

    def check(self) -> None:
        """Raise ChildFailed if the loop has ended."""
        while (line := self._child.hear(0.001)) is not None:
            self._source = {int(bucket): count for bucket, count in line["source"].items()}

    def hops(self) -> Mapping[str, Mapping[int, int]]:
        """Return the histogram of the path into the loop."""
        self.check()
        return {"source": self._source}

    def stop(self) -> None:
        """End the process."""
        self._child.end()


class Running(System):
    """A flow on Spark, started in this process; the job's name is the output topic's.

    Args:
        way: Its topics and records.
        conf: The job's.
        say: Called with each progress message.
        make: As in `Measured`, for another flow than that of the way's name.
    """

    def __init__(self, way: Way, conf: Conf, say: Callable[[str], None], make: Make | None = None) -> None:
        try:
            self._job = Job.start((make or FLOWS[way.flow].make)(way.sink, way.source, way.sink), conf, say)
        except BaseException:
            # If PySpark is interrupted while it waits for its JVM, the JVM would stay: nothing has its address yet.
            for pid in _jvms():
                os.kill(pid, signal.SIGKILL)
            raise

    def check(self) -> None:
        """Raise LifeEnded if the job has ended."""
        if not self._job.running():
            self._job.wait()

    def hops(self) -> Mapping[str, Mapping[int, int]]:
        """Return the workers' histograms; up to a second old."""
        return hops.of_status(self._job.status())

    def epoch_ends_ns(self) -> list[int]:
        """Return the ends by Spark's progress reports."""
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        assert session is not None, "the job runs in this process"
        return epoch_ends_ns(session)

    def client(self) -> ControlClient:
        """Return the job's control API."""
        return self._job.client()

    def stop(self) -> None:
        """Stop the job, Spark and its JVM: the next one starts with a JVM of its own."""
        from pyspark import SparkContext

        self._job.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        end_jvm(JVM_END_LIMIT_S)
        SparkContext._gateway = SparkContext._jvm = None


def _jvms() -> set[int]:
    """Spark's JVM of this process; none before its start."""
    return {pid for pid in descendants({os.getpid()}, parents()) if JVM in command(pid)}
