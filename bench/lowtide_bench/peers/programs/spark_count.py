"""The running count on Spark, run by the Python of its own environment with its task as JSON.

`micro-batch`: transformWithState on rows, the count in Python. `real-time`: groupBy and count in the JVM, as Real-Time
Mode takes no Python.
"""

# mypy: disable-error-code="attr-defined"

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - that is its name everywhere
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

TASK = json.loads(sys.argv[1])
REAL_TIME = TASK["mode"] == "real-time"
EPOCH = "60 seconds"
SHUFFLE_WAIT_MS = "2"
MESSAGE = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


class Count(StatefulProcessor):
    """Counts the records of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state: a number per key."""
        self._seen = handle.getValueState("seen", StructType([StructField("seen", LongType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Yield the records with their counts in their last 8 bytes."""
        (seen,) = self._seen.get() or (0,)
        for row in rows:
            seen += 1
            yield Row(key=row.key, value=bytes(row.value[:24]) + seen.to_bytes(8, "little"))
        self._seen.update((seen,))

    def close(self) -> None:
        """Do nothing: nothing is open."""


def little_endian(number: Column) -> Column:
    """Return a number as 8 bytes."""
    digits = F.lpad(F.hex(number), 16, "0")
    return F.concat(*[F.unhex(F.substring(digits, place, 2)) for place in range(15, 0, -2)])


def from_little_endian(value: Column, first: int) -> Column:
    """Return the number of the 8 bytes from a place on, counted from 1."""
    bytes_ = [F.substring(value, place, 1) for place in range(first + 7, first - 1, -1)]
    # To a base below 0: the number has a sign.
    return F.conv(F.hex(F.concat(*bytes_)), 16, -10).cast("long")


def counted(messages: DataFrame) -> DataFrame:
    """Return the results."""
    if not REAL_TIME:
        return messages.groupBy("key").transformWithState(
            statefulProcessor=Count(), outputStructType=MESSAGE, outputMode="Update", timeMode="None"
        )
    value = F.col("value")
    numbers = messages.select(
        "key", from_little_endian(value, 9).alias("n"), from_little_endian(value, 17).alias("due")
    )
    counts = numbers.groupBy("key").agg(
        F.count(F.lit(1)).alias("count"), F.last("n").alias("n"), F.last("due").alias("due")
    )
    parts = [F.col("key"), *(little_endian(F.col(name)) for name in ("n", "due", "count"))]
    return counts.select("key", F.concat(*parts).alias("value"))


def session() -> SparkSession:
    """Start Spark in this process."""
    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.jars": TASK["jars"],
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(TASK["partitions"]),
        "spark.sql.streaming.stateStore.providerClass": state,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2" if REAL_TIME else "1",
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": SHUFFLE_WAIT_MS,
    }
    builder = SparkSession.builder.master("local[12]" if REAL_TIME else "local[2]")
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    """Run until killed."""
    source = {"kafka.bootstrap.servers": TASK["kafka"], "subscribe": TASK["source"], "startingOffsets": "earliest"}
    messages = session().readStream.format("kafka").options(**source, **{"kafka.fetch.max.wait.ms": "5"}).load()
    sink = {"kafka.bootstrap.servers": TASK["kafka"], "topic": TASK["sink"], "kafka.linger.ms": "0"}
    writer = counted(messages).writeStream.format("kafka").options(**sink).outputMode("update")
    writer = writer.option("checkpointLocation", TASK["checkpoints"])
    writer = writer.trigger(**({"realTime": EPOCH} if REAL_TIME else {"processingTime": "0 seconds"}))
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
