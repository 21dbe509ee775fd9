"""The one Real-Time Mode query of a job: Kafka, then one stage per level, then nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowtide.conf import Conf
from lowtide.connectors.kafka_access import spark_options
from lowtide.flow.formats.endpoints import KafkaSource
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.columns import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def topics_of(plan: Plan) -> list[str]:
    """Return the topics that a plan reads, in the order of its sources."""
    sources = [vertex.step.source for vertex in plan.sources()]
    return list(dict.fromkeys(source.topic for source in sources if isinstance(source, KafkaSource)))


def starting_offsets(fronts: Mapping[str, int]) -> str:
    """Return Spark's `startingOffsets`: every partition by name, from where its front has to be read (R3)."""
    offsets: dict[str, dict[str, int]] = {}
    for front, offset in fronts.items():
        topic, _, partition = front.rpartition("-")
        offsets.setdefault(topic, {})[partition] = offset
    return json.dumps(offsets)


def start_query(
    session: SparkSession, plan: Plan, conf: Conf, fronts: Mapping[str, int], *, incarnation: int, checkpoint: Path
) -> Any:
    """Start the query of a life and return Spark's (Java) StreamingQuery."""
    jvm: Any = session._jvm
    stages = jvm.io.lowtide.StageFunction
    exchange = conf.exchange
    frames = stages.source(
        _rows(session, plan, conf, fronts)._jdf,
        incarnation,
        exchange.max_frame_rows,
        exchange.frame_bytes,
        int(conf.epoch.duration_s * 1000),
    )
    for level in range(1, plan.levels):
        frames = stages.level(_to_workers(session, frames, plan.parallelism), incarnation, level)
    trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(f"{int(conf.epoch.duration_s * 1000)} milliseconds")
    writer = frames.writeStream().foreach(jvm.io.lowtide.Discard()).outputMode("update").trigger(trigger)
    writer = writer.option("checkpointLocation", str(checkpoint)).queryName(plan.name)
    return writer.start()


def _rows(session: SparkSession, plan: Plan, conf: Conf, fronts: Mapping[str, int]) -> DataFrame:
    from pyspark.sql import functions as f

    reader = session.readStream.format("kafka").options(**spark_options(conf.kafka))
    reader = reader.option("subscribe", ",".join(topics_of(plan)))
    reader = reader.option("startingOffsets", starting_offsets(fronts))
    reader = reader.option("kafka.isolation.level", "read_committed")
    columns: list[Any] = ["topic", "partition", "offset", f.unix_millis("timestamp").alias("timestamp"), "key", "value"]
    if _needs_headers(plan):
        reader = reader.option("includeHeaders", "true")
        columns.append("headers")
    return reader.load().select(*columns)


def _needs_headers(plan: Plan) -> bool:
    """Return whether anything reads headers: packing them costs a few microseconds a record."""
    reads = [vertex.step.source for vertex in plan.sources()]
    return plan.dead_letters is not None or any(columns_of(each.format.record).has_headers for each in reads)


def _to_workers(session: SparkSession, frames: Any, parallelism: int) -> Any:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    return DataFrame(frames, session).repartitionById(parallelism, f.col("target"))._jdf
