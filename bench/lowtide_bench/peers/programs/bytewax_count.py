"""The running count on Bytewax; run by `python -m bytewax.run` of its own environment, its task in PEER_TASK."""

# mypy: disable-error-code="import-not-found"

import json
import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from confluent_kafka import OFFSET_BEGINNING

TASK = json.loads(os.environ["PEER_TASK"])
BATCH = 1_000


def count(seen: int | None, value: bytes) -> tuple[int, bytes]:
    """Return the record with its count in its last 8 bytes."""
    number = (seen or 0) + 1
    return number, value[:24] + number.to_bytes(8, "little")


flow = Dataflow("running-count")
source = KafkaSource(
    [TASK["kafka"]],
    [TASK["source"]],
    starting_offset=OFFSET_BEGINNING,
    add_config={"fetch.wait.max.ms": "5"},
    batch_size=BATCH,
)
records = op.map("keyed", op.input("source", flow, source), lambda message: (message.key.decode(), message.value))
counted = op.stateful_map("count", records, count)
messages = op.map("messages", counted, lambda pair: KafkaSinkMessage(pair[0].encode(), pair[1]))
op.output("sink", messages, KafkaSink([TASK["kafka"]], TASK["sink"], add_config={"linger.ms": "0"}))
