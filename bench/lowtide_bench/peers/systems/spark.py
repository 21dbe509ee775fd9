"""Spark without Lowtide: micro-batches with state in Python, and Real-Time Mode with the count in the JVM."""

from __future__ import annotations

from functools import partial

from lowtide.jars.third_party import connector_jars
from lowtide_bench.peers.environments import python
from lowtide_bench.peers.program import PROGRAMS, Kind, Place, Program


def install() -> None:
    """Fetch Spark with the packages for state in Python, and its Kafka connector."""
    python("spark")
    connector_jars()


def start(mode: str, place: Place) -> Program:
    """Start it."""
    interpreter, jars = str(python("spark")), ",".join(map(str, connector_jars()))
    command = [interpreter, str(PROGRAMS / "spark_count.py")]
    local = {"PYSPARK_PYTHON": interpreter, "SPARK_LOCAL_IP": "127.0.0.1"}
    return Program(command, lambda _: place.task(mode=mode, jars=jars), place.folder, local)


MICRO_BATCH = Kind(
    name="spark-micro-batch",
    title="Spark micro-batch, transformWithState in Python",
    delivery="at least once",
    rates=(5_000, 8_000, 12_000, 18_000, 27_000, 40_000, 55_000, 75_000),
    install=install,
    start=partial(start, "micro-batch"),
)
REAL_TIME = Kind(
    name="spark-real-time",
    title="Spark Real-Time Mode, count in the JVM, no Python",
    delivery="at least once",
    rates=(20_000, 30_000, 45_000, 60_000, 80_000, 100_000, 130_000),
    install=install,
    start=partial(start, "real-time"),
    unable={
        "inverted-index": "Real-Time Mode takes no Python, and none of the JVM's aggregates keeps just a document's "
        "last version, to compare the next one with (transformWithState in Scala could)"
    },
)
