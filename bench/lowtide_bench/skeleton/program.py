"""The skeleton's Spark driver, a program of its own: `python -m lowtide_bench.skeleton.program`."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowtide.conf import Conf
from lowtide.connectors.kafka_access import spark_options
from lowtide.driver.session import launch_settings, settings
from lowtide.errors import LifeEnded, LowtideError
from lowtide.jars.third_party import connector_jars
from lowtide_bench.child import Child, Parent
from lowtide_bench.epochs import epoch_ends_ns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTERS = 1
"""Workers after the exchange. The prototype was faster with one than with two, which compete for the cores."""
START_LIMIT_S = 30.0
SAY_EVERY_S = 0.5
POLL_S = 0.1
JVM_END_LIMIT_S = 10.0


def own_settings(conf: Conf, jar: str) -> dict[str, str]:
    """Return a job's Spark settings with the skeleton's jar in place of Lowtide's plugin and jar."""
    of_job = {**launch_settings(conf), **settings(conf)}
    kept = {key: value for key, value in of_job.items() if not key.startswith(("spark.plugins", "spark.lowtide."))}
    return {**kept, "spark.jars": ",".join(map(str, [*connector_jars(), jar]))}


def start_session(conf: Conf, jar: str) -> SparkSession:
    """Start Spark as a job does."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName("skeleton")
    for key, value in own_settings(conf, jar).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel(conf.spark.log_level)
    return session


def start_workers(stack: ExitStack, task: Mapping[str, Any]) -> list[list[Child]]:
    """Start the workers of both levels; they end with the stack, or with this process.

    Raises:
        ChildFailed: one did not start.
    """
    sink = {"kafka": task["kafka"], "topic": task["to"], "counts": task["counts"]}
    of_levels: list[list[dict[str, Any]]] = [
        [{"targets": COUNTERS}] * task["partitions"],
        [{**sink, "partition": number} for number in range(COUNTERS)],
    ]
    levels = [[Child("lowtide_bench.skeleton.worker", each) for each in level] for level in of_levels]
    for worker in (worker for level in levels for worker in level):
        stack.callback(worker.end)
    return levels


def ports_of(workers: Sequence[Child]) -> str:
    """Return the ports of a level's workers by partition, separated by commas."""
    return ",".join(str(worker.expect("port", START_LIMIT_S)["port"]) for worker in workers)


def start_query(session: SparkSession, conf: Conf, topic: str, ports: Sequence[str], checkpoint: str) -> Any:
    """Start the query and return Spark's (Java) StreamingQuery.

    Args:
        session: The session.
        conf: A job's conf: for the length of an epoch and Kafka's address.
        topic: The topic to read from its beginning.
        ports: Ports of the workers of each level.
        checkpoint: A folder for Spark.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    jvm: Any = session._jvm
    stage = jvm.io.lowtide.skeleton.Stage
    reader = session.readStream.format("kafka").options(**spark_options(conf.kafka)).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("kafka.isolation.level", "read_committed")
    rows: Any = reader.load().select(f.unix_millis("timestamp").alias("timestamp"), "value")
    sent = DataFrame(stage.source(rows._jdf, ports[0]), session).repartitionById(COUNTERS, f.col("target"))
    counted = stage.level(sent._jdf, ports[1])
    trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(f"{int(conf.epoch.duration_s * 1000)} milliseconds")
    nowhere = getattr(jvm.io.lowtide.skeleton, "Stage$Nowhere")()
    writer = counted.writeStream().foreach(nowhere).outputMode("update").trigger(trigger)
    return writer.option("checkpointLocation", checkpoint).start()


def watch(parent: Parent, session: SparkSession, query: Any, workers: Sequence[Child]) -> None:
    """Report the ends of epochs, until the parent wants the end.

    Raises:
        LifeEnded: the query has ended by itself.
        ChildFailed: a worker has ended.
    """
    said_at = 0.0
    while "stop" not in parent.orders:
        for worker in workers:
            worker.hear(0.001)
        if not query.isActive():
            error = query.exception()
            raise LifeEnded(f"Spark ended the query: {error.get().toString() if error.isDefined() else 'no cause'}")
        if time.monotonic() - said_at > SAY_EVERY_S:
            said_at = time.monotonic()
            parent.say(ends=epoch_ends_ns(session))
        time.sleep(POLL_S)


def end_session(session: SparkSession) -> None:
    """Stop Spark and its JVM, which would otherwise end some time after this process."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JVM_END_LIMIT_S)


def own_output() -> None:
    """Keep standard output for the parent: send the JVM's output to standard error."""
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


def main() -> int:
    """Run the skeleton until the parent wants the end."""
    own_output()
    parent = Parent()
    task = parent.task
    # A file of the run's own folder, written by its own parent.
    conf = pickle.loads(Path(task["conf"]).read_bytes())  # noqa: S301
    with ExitStack() as stack:
        try:
            levels = start_workers(stack, task)
            session = start_session(conf, task["jar"])
            stack.callback(end_session, session)
            ports = [ports_of(level) for level in levels]
            query = start_query(session, conf, task["from"], ports, task["checkpoint"])
            watch(parent, session, query, [worker for level in levels for worker in level])
            with suppress(Exception):  # It may have ended meanwhile; the session's end ends it anyway.
                query.stop()
        except LowtideError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
