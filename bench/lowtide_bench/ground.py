"""Services to measure systems on: a Kafka and a ZooKeeper for the run alone, and a folder beside them."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import EmbeddedServices
from lowtide_bench.asked import Timestamps
from lowtide_bench.companion import Companion
from lowtide_bench.flows import COUNTING
from lowtide_bench.machine import load as machine_load
from lowtide_bench.machine import machine, versions
from lowtide_bench.session import Say, Subject
from lowtide_bench.skeleton.jar import skeleton_jar
from lowtide_bench.skeleton.system import Skeleton
from lowtide_bench.systems import Bare, Running, System, Way

PARTITIONS = 2
BROKER = ("-XX:TieredStopAtLevel=1",)
"""The broker compiles with C1 only: C2 takes up to half a core for the first minute, C1 is quiet after some seconds."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Services to measure systems on, for the run alone, and a folder beside them.

    Attributes:
        conf: Conf for flows; Kafka's and ZooKeeper's addresses and all folders are this ground's.
        folder: Folder that the reader may write to.
        timestamps: Origin of the source records' timestamps: the producer, or the broker as it appends them.
    """

    conf: Conf
    folder: Path
    timestamps: Timestamps
    used: Counter[str] = field(default_factory=Counter)
    """Number of times each name of a way was given."""

    def source(self, name: str) -> str:
        """Make a topic for the input, and return its name."""
        config = {"message.timestamp.type": "LogAppendTime"} if self.timestamps == "append" else {}
        Topics(self.conf.kafka).create(f"{name}-source", partitions=PARTITIONS, config=config)
        return f"{name}-source"

    def way(self, flow: str, name: str, *, source: str = "", passed: bool = False) -> Way:
        """Make a topic for the output, and one for the input unless it is given; see `Way`.

        A name given before gets a number, as when a measurement is repeated.
        """
        self.used[name] += 1
        name = f"{name}-{self.used[name]}" if self.used[name] > 1 else name
        way = Way(
            flow, passed, self.conf.kafka.bootstrap_servers, source or self.source(name), f"{name}-sink", PARTITIONS
        )
        Topics(self.conf.kafka).create(way.sink, partitions=PARTITIONS)
        return way

    def bare(self, flow: str, say: Say) -> Subject:
        """Return the bare loop, for a flow's records."""
        say("the bare loop")
        way = self.way(flow, "bare", passed=True)
        return self.subject(way, lambda: Bare(way), say)

    def skeleton(self, flow: str, say: Say, *, state_keys: int = 0) -> Subject:
        """Return the skeleton for a flow's records, which it counts if the flow does; keys as in `Subject`."""
        say("the skeleton")
        way = self.way(flow, "skeleton", passed=flow != COUNTING)
        return self.subject(way, self.skeleton_of(way), say, state_keys=state_keys)

    def skeleton_of(self, way: Way) -> Callable[[], Skeleton]:
        """Return the starter of the skeleton between two topics, with a folder of its own for Spark."""
        jar, folder = skeleton_jar(), self.folder / way.sink
        folder.mkdir()
        return lambda: Skeleton(way, self.conf, jar, folder, counts=not way.passed)

    def flow(self, flow: str, say: Say, *, state_keys: int = 0, companions: Sequence[Companion] = ()) -> Subject:
        """Return a flow; keys and companions as in `Subject`."""
        say(f"the flow {flow}")
        way = self.way(flow, flow)
        return self.subject(
            way, lambda: Running(way, self.conf, say), say, state_keys=state_keys, companions=companions
        )

    def subject(
        self,
        way: Way,
        start: Callable[[], System],
        say: Say,
        *,
        state_keys: int = 0,
        companions: Sequence[Companion] = (),
    ) -> Subject:
        """Return the subject between two topics, however it is started."""
        file = self.folder / f"{way.sink}.npy"
        return Subject(way, start, file, self.conf.job.start_limit_s, say, state_keys, companions)


@contextmanager
def ground(conf: Conf, timestamps: Timestamps, say: Say) -> Iterator[Ground]:
    """Give a ground to measure on; the services it started end with the block."""
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as name:
        folder = Path(name)
        say("starting Kafka and ZooKeeper")
        with EmbeddedServices(folder / "services", kafka_options=BROKER) as services:
            yield Ground(_local(conf, services, folder), folder, timestamps)


@contextmanager
def described() -> Iterator[dict[str, Any]]:
    """Give an object that at the block's end holds the context of a figure: `versions` and `machine`."""
    surroundings: dict[str, Any] = {}
    where = machine()
    yield surroundings
    surroundings |= {"versions": versions(), "machine": {**where, "load_after": machine_load()}}


def modes(conf: Conf, timestamps: Timestamps) -> dict[str, Any]:
    """Return the modes of a flow that affect its figures."""
    return {
        "grouping": conf.job.grouping,
        "delivery": conf.job.delivery,
        "timestamps": timestamps,
        "epoch_s": conf.epoch.duration_s,
    }


def _local(conf: Conf, services: EmbeddedServices, folder: Path) -> Conf:
    """The conf on this ground; the measurement requests snapshots, never the job itself."""
    return dataclasses.replace(
        conf,
        job=dataclasses.replace(conf.job, folder=str(folder / "jobs")),
        kafka=dataclasses.replace(conf.kafka, bootstrap_servers=services.kafka, security_protocol="PLAINTEXT"),
        zookeeper=dataclasses.replace(conf.zookeeper, hosts=services.zookeeper, auth_env=None, auth_file=None),
        spark=dataclasses.replace(conf.spark, checkpoint_folder=str(folder / "checkpoints")),
        snapshots=dataclasses.replace(conf.snapshots, url=str(folder / "snapshots"), endpoint=None, max_commit_age_s=0),
    )
