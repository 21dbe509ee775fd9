"""A flow on PyFlink 2, exactly once; run by the Python of Flink's own environment with its task as JSON."""

# mypy: disable-error-code="import-not-found, misc"

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Row, Types, WatermarkStrategy
from pyflink.common.serialization import ByteArraySchema, RowFieldExtractorSchema
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.state import ValueStateDescriptor
from steps import STEPS

TASK = json.loads(sys.argv[1])
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
ITEM = Types.ROW([Types.STRING(), BYTES])


class Count(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state: a number per key."""
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: bytes, ctx: Any) -> Iterator[Row]:
        """Yield the record with its count in its last 8 bytes."""
        seen = (self._seen.value() or 0) + 1
        self._seen.update(seen)
        yield Row(value[:8], value[:24] + seen.to_bytes(8, "little"))


class Step(KeyedProcessFunction):
    """A step of another flow; see `steps`."""

    def __init__(self, step: Any) -> None:
        self._step = step

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state: what the step keeps of a key."""
        self._kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        """Yield the items that the step makes of one."""
        kept, items = self._step(self._kept.value(), (value[0], bytes(value[1])))
        self._kept.update(kept)
        for item in items:
            yield Row(*item)


def counted(records: Any) -> Any:
    """Return the results of the running count."""
    return records.key_by(lambda value: value[:8].decode(), key_type=Types.STRING()).process(
        Count(), output_type=Types.ROW([BYTES, BYTES])
    )


def of_documents(records: Any) -> Any:
    """Return the results of another flow."""
    split, *steps = STEPS[TASK["flow"]]
    items = records.flat_map(lambda value: [Row(*item) for item in split(bytes(value))], output_type=ITEM)
    for step in steps:
        items = items.key_by(lambda item: item[0], key_type=Types.STRING()).process(Step(step), output_type=ITEM)
    return items.map(lambda item: Row(item[0].encode(), item[1]), output_type=Types.ROW([BYTES, BYTES]))


def configuration() -> Configuration:
    """Return Flink's settings."""
    settings = {
        "python.execution-mode": TASK["mode"],
        "python.fn-execution.bundle.time": "10",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "pipeline.jars": f"file://{TASK['jar']}",
        "rest.bind-address": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "rest.bind-port": "0",
        "execution.checkpointing.interval": f"{TASK['checkpoint_ms']} ms",
        "execution.checkpointing.dir": f"file://{TASK['checkpoints']}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.num-retained": "3",
    }
    if TASK["from_checkpoint"]:
        settings["execution.state-recovery.path"] = f"file://{TASK['from_checkpoint']}"
    configured = Configuration()
    for name, value in settings.items():
        configured.set_string(name, value)
    return configured


def main() -> None:
    """Run until killed."""
    environment = StreamExecutionEnvironment.get_execution_environment(configuration())
    environment.set_parallelism(TASK["partitions"])
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(TASK["kafka"])
        .set_topics(TASK["source"])
        .set_group_id(TASK["source"])
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(ByteArraySchema())
        .set_property("fetch.max.wait.ms", "5")
        .build()
    )
    records = environment.from_source(source, WatermarkStrategy.no_watermarks(), "source", BYTES)
    results = of_documents(records) if TASK["flow"] in STEPS else counted(records)
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(TASK["sink"])
        .set_key_serialization_schema(RowFieldExtractorSchema(0))
        .set_value_serialization_schema(RowFieldExtractorSchema(1))
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(TASK["kafka"])
        .set_record_serializer(schema)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(TASK["sink"])
        .set_property("transaction.timeout.ms", "60000")
        .set_property("linger.ms", "0")
        .build()
    )
    results.sink_to(sink)
    environment.execute(TASK["flow"])


if __name__ == "__main__":
    main()
