"""A whole run at one rate: Kafka and ZooKeeper, the bare loop, the flow; one object of figures."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lowtide.bench.figures import Figures
from lowtide.bench.machine import load as machine_load
from lowtide.bench.machine import machine, versions
from lowtide.bench.session import Load, Say, measure
from lowtide.bench.systems import Bare, Running, System, Way
from lowtide.conf import Conf
from lowtide.embedded import EmbeddedServices
from lowtide.topics import Topics

PARTITIONS = 2

Timestamps = Literal["create", "append"]


@dataclass(frozen=True, slots=True)
class Ground:
    """Where systems are measured: services of its own, and a folder that goes with them.

    Attributes:
        conf: How flows are run; Kafka's and ZooKeeper's addresses and the checkpoints' folder are this ground's.
        folder: Where the reader may write.
        timestamps: Who dates the source's records: their producer, or the broker as it appends them.
    """

    conf: Conf
    folder: Path
    timestamps: Timestamps

    def way(self, flow: str, name: str, *, passed: bool = False) -> Way:
        """Make two topics, and return what is sent through them; see `Way`."""
        way = Way(flow, passed, self.conf.kafka.bootstrap, f"{name}-source", f"{name}-sink", PARTITIONS)
        topics = Topics(self.conf.kafka)
        config = {"message.timestamp.type": "LogAppendTime"} if self.timestamps == "append" else {}
        topics.create(way.source, partitions=PARTITIONS, config=config)
        topics.create(way.sink, partitions=PARTITIONS)
        return way

    def bare(self, flow: str, load: Load, say: Say) -> Figures:
        """Measure the bare loop with a flow's records."""
        way = self.way(flow, "bare", passed=True)
        return self._measure(way, "bare", load, lambda: Bare(way), say)

    def flow(self, flow: str, load: Load, say: Say, *, name: str | None = None) -> Figures:
        """Measure a flow, as a job of this name."""
        named = name or flow
        way = self.way(flow, named)

        def start() -> System:
            return Running(named, way, self.conf, say)

        return self._measure(way, named, load, start, say)

    def _measure(self, way: Way, name: str, load: Load, start: Any, say: Say) -> Figures:
        limit_s = self.conf.job.start_limit_s
        return measure(way, load, start, file=self.folder / f"{name}.npy", start_limit_s=limit_s, say=say)


@contextmanager
def ground(conf: Conf, timestamps: Timestamps, say: Say) -> Iterator[Ground]:
    """Give a ground to measure on; what was started for it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as name:
        folder = Path(name)
        say("starting Kafka and ZooKeeper")
        with EmbeddedServices(folder / "services") as services:
            yield Ground(_local(conf, services, folder), folder, timestamps)


def run(flow: str, load: Load, conf: Conf, say: Say, *, timestamps: Timestamps = "create") -> dict[str, Any]:
    """Measure the bare loop, then the flow, and return the object that `lowtide bench latency --json` prints.

    Everything it starts (Kafka and ZooKeeper in a temporary folder, Spark, the processes around them) ends with it.

    Args:
        flow: One of `flows.FLOWS`.
        load: What is sent.
        conf: How the flow is run; the services' addresses and the checkpoints' folder are replaced.
        say: Told what happens.
        timestamps: As in `Ground`.

    Raises:
        LowtideError: what ended the run.
    """
    where = machine()
    with ground(conf, timestamps, say) as here:
        say("the bare loop")
        bare = here.bare(flow, load, say)
        say(f"the flow {flow}")
        figures = here.flow(flow, load, say)
    return {
        "flow": flow,
        "rate": load.rate,
        "grouping": conf.job.grouping,
        "delivery": conf.job.delivery,
        "tracking": conf.job.tracking,
        "timestamps": timestamps,
        "seconds": load.seconds,
        "warmup_s": load.warmup_s,
        "epoch_s": conf.epoch.duration_s,
        **figures.as_json(),
        "bare": bare.as_json(),
        "versions": versions(),
        "machine": {**where, "load_after": machine_load()},
    }


def _local(conf: Conf, services: EmbeddedServices, folder: Path) -> Conf:
    return dataclasses.replace(
        conf,
        kafka=dataclasses.replace(conf.kafka, bootstrap=services.kafka, security_protocol="plaintext"),
        zookeeper=dataclasses.replace(conf.zookeeper, hosts=services.zookeeper, auth_env=None, auth_file=None),
        spark=dataclasses.replace(conf.spark, checkpoint_folder=str(folder / "checkpoints")),
    )
