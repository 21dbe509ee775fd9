"""A flow on Spark, run by the Python of its own environment with its task as JSON.

`micro-batch`: transformWithState on rows, the steps in Python. `real-time`: groupBy and count in the JVM, as Real-Time
Mode takes no Python.
"""

# mypy: disable-error-code="attr-defined, import-not-found"

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - that is its name everywhere
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from steps import STEPS

TASK = json.loads(sys.argv[1])
REAL_TIME = TASK["mode"] == "real-time"
EPOCH = "60 seconds"
SHUFFLE_WAIT_MS = "2"
MESSAGE = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
ITEM = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
DOCUMENT = "name string, text string, version long, sent_ns long"


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


class Step(StatefulProcessor):
    """A step of another flow, see `steps`; what it keeps of a key is JSON.

    Args:
        step: The step.
        sorted_by: Column to sort a key's rows of a batch by, as Spark promises no order.
    """

    def __init__(self, step: Any, sorted_by: str = "") -> None:
        self._step = step
        self._sorted_by = sorted_by

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._kept = handle.getValueState("kept", StructType([StructField("kept", StringType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Yield the items that the step makes."""
        held = self._kept.get()
        kept = json.loads(held[0]) if held else None
        for row in sorted(rows, key=lambda row: row[self._sorted_by]) if self._sorted_by else rows:
            kept, items = self._step(kept, (row.key, bytes(row.value)))
            for word, value in items:
                yield Row(key=word, value=value)
        self._kept.update((json.dumps(kept),))

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


def words_of(messages: DataFrame) -> DataFrame:
    """Return the words of documents, each with its place."""
    documents = messages.select(F.from_json(F.col("value").cast("string"), DOCUMENT).alias("d"))
    places = F.posexplode(F.split("d.text", " ")).alias("place", "word")
    return documents.select(F.col("d.version").alias("version"), F.col("d.sent_ns").alias("sent_ns"), places)


def words_counted(messages: DataFrame) -> DataFrame:
    """Return the results of the word count."""
    words, fields = words_of(messages), ["version", "sent_ns", "place"]
    if not REAL_TIME:
        occurrence = F.to_json(F.struct("word", *fields)).cast("binary")
        items = words.select(F.col("word").alias("key"), occurrence.alias("value"))
        return stepped(items, STEPS["word-count"][1], "Update")
    counts = words.groupBy("word").agg(F.count(F.lit(1)).alias("count"), *(F.last(name).alias(name) for name in fields))
    return counts.select(F.col("word").alias("key"), F.to_json(F.struct("word", *fields, "count")).alias("value"))


def indexed(messages: DataFrame) -> DataFrame:
    """Return the changes of the inverted index."""
    _, changes, update = STEPS["inverted-index"]
    documents = messages.select(F.col("key").cast("string").alias("key"), "value", "offset")
    # Only with this mode may a step with state follow another.
    return stepped(stepped(documents, changes, "Append", "offset"), update, "Append")


def stepped(items: DataFrame, step: Any, mode: str, sorted_by: str = "") -> DataFrame:
    """Return the items that a step makes."""
    return items.groupBy("key").transformWithState(
        statefulProcessor=Step(step, sorted_by), outputStructType=ITEM, outputMode=mode, timeMode="None"
    )


RESULTS = {"running-count": counted, "word-count": words_counted, "inverted-index": indexed}


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
    mode = "append" if TASK["flow"] == "inverted-index" else "update"
    writer = RESULTS[TASK["flow"]](messages).writeStream.format("kafka").options(**sink).outputMode(mode)
    writer = writer.option("checkpointLocation", TASK["checkpoints"])
    writer = writer.trigger(**({"realTime": EPOCH} if REAL_TIME else {"processingTime": "0 seconds"}))
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
