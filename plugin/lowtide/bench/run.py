"""A whole run at one rate: Kafka and ZooKeeper, the bare loop, the flow; one object of figures."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lowtide.bench.machine import load as machine_load
from lowtide.bench.machine import machine, versions
from lowtide.bench.ramp import drained_per_s, steps, sustained
from lowtide.bench.session import Load, Rise, Say, Subject, measure, observe
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

    def bare(self, flow: str, say: Say) -> Subject:
        """Return the bare loop, for a flow's records."""
        say("the bare loop")
        way = self.way(flow, "bare", passed=True)
        return self._subject(way, lambda: Bare(way), say)

    def flow(self, flow: str, say: Say) -> Subject:
        """Return a flow."""
        say(f"the flow {flow}")
        way = self.way(flow, flow)
        return self._subject(way, lambda: Running(flow, way, self.conf, say), say)

    def _subject(self, way: Way, start: Callable[[], System], say: Say) -> Subject:
        file = self.folder / f"{way.sink}.npy"
        return Subject(way, start, file, self.conf.job.start_limit_s, say)


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
        bare = measure(here.bare(flow, say), load)
        figures = measure(here.flow(flow, say), load)
    return {
        "flow": flow,
        "rate": load.rate,
        **modes(conf, timestamps),
        "seconds": load.seconds,
        "warmup_s": load.warmup_s,
        **figures.as_json(),
        "bare": bare.as_json(),
        "versions": versions(),
        "machine": {**where, "load_after": machine_load()},
    }


def run_ramp(flow: str, rise: Rise, conf: Conf, say: Say, *, timestamps: Timestamps = "create") -> dict[str, Any]:
    """Find out how much the bare loop and the flow can take; return what `lowtide bench throughput --json` prints.

    Args and errors as of `run`.
    """
    where = machine()
    with ground(conf, timestamps, say) as here:
        bare = _ramped(here.bare(flow, say), rise)
        figures = _ramped(here.flow(flow, say), rise)
    shares = {name: _share(figures[name], bare[name]) for name in ("sustained_per_s", "drained_per_s")}
    if bare["sustained_per_s"] == max(rise.rates):
        # The loop was not taken to its limit, so a share of what it did would flatter.
        shares["sustained_per_s"] = None
    return {
        "flow": flow,
        **modes(conf, timestamps),
        "step_s": rise.step_s,
        "warmup_s": rise.warmup_s,
        **figures,
        "share_of_bare": shares,
        "bare": bare,
        "versions": versions(),
        "machine": {**where, "load_after": machine_load()},
    }


def _share(figure: float | None, of: float | None) -> float | None:
    return round(figure / of, 3) if figure and of else None


def _ramped(subject: Subject, rise: Rise) -> dict[str, Any]:
    arrivals, schedule, observed = observe(subject, rise)
    found = steps(arrivals, schedule)
    return {
        "sustained_per_s": sustained(found),
        "drained_per_s": drained_per_s(arrivals, schedule),
        "lost": observed.due - len(arrivals),
        "duplicated": arrivals.duplicated,
        "faults": arrivals.faults,
        "generator_lag_p99_ms": observed.lag_p99_ms,
        "steps": [step.as_json() for step in found],
    }


def modes(conf: Conf, timestamps: Timestamps) -> dict[str, Any]:
    """Return how a flow was run, as far as its figures depend on it."""
    return {
        "grouping": conf.job.grouping,
        "delivery": conf.job.delivery,
        "tracking": conf.job.tracking,
        "timestamps": timestamps,
        "epoch_s": conf.epoch.duration_s,
    }


def _local(conf: Conf, services: EmbeddedServices, folder: Path) -> Conf:
    return dataclasses.replace(
        conf,
        kafka=dataclasses.replace(conf.kafka, bootstrap=services.kafka, security_protocol="plaintext"),
        zookeeper=dataclasses.replace(conf.zookeeper, hosts=services.zookeeper, auth_env=None, auth_file=None),
        spark=dataclasses.replace(conf.spark, checkpoint_folder=str(folder / "checkpoints")),
    )
