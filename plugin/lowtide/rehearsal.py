"""Run a small job once, on services of its own, and keep what its JVMs have loaded: `python -m lowtide.rehearsal`.

The next start of Spark, and of an embedded Kafka, takes about half as long.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lowtide.api import Flow
from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.driver.job import Job
from lowtide.driver.session import driver_archive
from lowtide.embedded import EmbeddedServices
from lowtide.embedded.kafka import broker_archive
from lowtide.errors import LowtideError
from lowtide.flow.formats.endpoints import kafka
from lowtide.flow.formats.formats import raw
from lowtide.jars.class_archive import ClassArchive

__all__ = ["rehearse"]

READY_WITHIN_S = 120.0
PLAYS_S = 3.0
EXIT_WITHIN_S = 120.0


def rehearse(wanted: Sequence[ClassArchive]) -> None:
    """Make archives. The program should end afterwards: its JVM has.

    Raises:
        LowtideError: the job does not run here; what is said is what `lowtide run` would say.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for archive in wanted:
            stack.enter_context(archive.made())
        services = stack.enter_context(EmbeddedServices(Path(folder, "services")))
        conf = Conf.load(
            None,
            {
                "kafka.bootstrap_servers": services.kafka,
                "zookeeper.hosts": services.zookeeper,
                "spark.checkpoint_folder": str(Path(folder, "checkpoints")),
                "snapshots.url": str(Path(folder, "snapshots")),
                "job.parallelism": 1,
            },
        )
        for topic in ("asked", "said"):
            Topics(conf.kafka).create(topic, partitions=1)
        flow = Flow("rehearsal")
        flow.read("asked", kafka("asked", raw())).write("said", kafka("said", raw()))
        job = Job.start(flow, conf)
        try:
            job.wait_for_workers(READY_WITHIN_S)
            _play(conf)
        finally:
            job.stop()
            _end_jvm()


def _play(conf: Conf) -> None:
    from confluent_kafka import Producer

    producer = Producer(librdkafka_settings(conf.kafka))
    until = time.monotonic() + PLAYS_S
    while time.monotonic() < until:
        producer.produce("asked", b"line", b"key")
        producer.flush(1.0)
        time.sleep(0.1)


def _end_jvm() -> None:
    """Let Spark's JVM exit, which is when it writes its archive; pyspark has no public way to wait for that."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_WITHIN_S)


@contextmanager
def _apart() -> Iterator[None]:
    """Keep what this process and those that it starts say apart; it is shown if the block fails."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(saved, said.read())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def main() -> int:
    """Make what is missing, and say where the archives are."""
    try:
        wanted = [driver_archive(), broker_archive()]
        missing = [archive for archive in wanted if not archive.there]
        if missing:
            sys.stdout.write("rehearsing a job, so that later ones start sooner (half a minute)\n")
            sys.stdout.flush()
            with _apart():
                rehearse(missing)
        for archive in wanted:
            there = archive.path if archive.there else "none, this Java cannot make it"
            sys.stdout.write(f"classes of {archive.name}: {there}\n")
    except LowtideError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
