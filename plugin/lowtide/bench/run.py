"""A whole run at one rate: Kafka, the bare loop, the flow; one object of figures."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from lowtide.bench.figures import Figures
from lowtide.bench.machine import load as machine_load
from lowtide.bench.machine import machine, versions
from lowtide.bench.session import Load, Say, measure
from lowtide.bench.systems import Bare, Running, System, Way
from lowtide.conf import Conf
from lowtide.embedded import EmbeddedServices
from lowtide.topics import Topics

PARTITIONS = 2


def run(flow: str, load: Load, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure the bare loop, then the flow, and return the object that `lowtide bench latency --json` prints.

    Everything it starts (Kafka in a temporary folder, Spark, the processes around them) ends with it.

    Args:
        flow: One of `flows.FLOWS`.
        load: What is sent.
        conf: How the flow is run; Kafka's address and the checkpoints' folder are replaced.
        say: Told what happens.

    Raises:
        LowtideError: what ended the run.
    """
    where = machine()
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as name:
        folder = Path(name)
        say("starting Kafka")
        with EmbeddedServices(folder / "services", only=("kafka",)) as services:
            conf = _local(conf, services.kafka, folder)
            say("the bare loop")
            bare = _bare(conf, load, folder, say)
            say(f"the flow {flow}")
            figures = _flow(flow, conf, load, folder, say)
    return {
        "flow": flow,
        "rate": load.rate,
        "seconds": load.seconds,
        "warmup_s": load.warmup_s,
        "epoch_s": conf.epoch.duration_s,
        **figures.as_json(),
        "bare": bare.as_json(),
        "versions": versions(),
        "machine": {**where, "load_after": machine_load()},
    }


def _local(conf: Conf, kafka: str, folder: Path) -> Conf:
    return dataclasses.replace(
        conf,
        kafka=dataclasses.replace(conf.kafka, bootstrap=kafka, security_protocol="plaintext"),
        spark=dataclasses.replace(conf.spark, checkpoint_folder=str(folder / "checkpoints")),
    )


def _bare(conf: Conf, load: Load, folder: Path, say: Say) -> Figures:
    way = _way(conf, "bare")
    return measure(
        way, load, lambda: Bare(way), file=folder / "bare.npy", start_limit_s=conf.job.start_limit_s, say=say
    )


def _flow(flow: str, conf: Conf, load: Load, folder: Path, say: Say) -> Figures:
    way = _way(conf, flow)

    def start() -> System:
        return Running(flow, way, conf, say)

    return measure(way, load, start, file=folder / "flow.npy", start_limit_s=conf.job.start_limit_s, say=say)


def _way(conf: Conf, name: str) -> Way:
    """Make two topics; the source's gets the broker's time, which both systems pass on to the sink's."""
    way = Way(conf.kafka.bootstrap, f"{name}-source", f"{name}-sink", PARTITIONS)
    topics = Topics(conf.kafka)
    topics.create(way.source, partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"})
    topics.create(way.sink, partitions=PARTITIONS)
    return way
