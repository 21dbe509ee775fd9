"""A flow on Bytewax; run by `python -m bytewax.run` of its own environment, its task in PEER_TASK."""

# mypy: disable-error-code="import-not-found"

import json
import os
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from confluent_kafka import OFFSET_BEGINNING
from steps import STEPS

TASK = json.loads(os.environ["PEER_TASK"])
BATCH = 1_000


def count(seen: int | None, value: bytes) -> tuple[int, bytes]:
    """Return the record with its count in its last 8 bytes."""
    number = (seen or 0) + 1
    return number, value[:24] + number.to_bytes(8, "little")


def counted(messages: Any) -> Any:
    """Return the results of the running count."""
    records = op.map("keyed", messages, lambda message: (message.key.decode(), message.value))
    return op.stateful_map("count", records, count)


def of_documents(messages: Any) -> Any:
    """Return the results of another flow."""
    split, *steps = STEPS[TASK["flow"]]
    items = op.flat_map("split", messages, lambda message: split(message.value))
    for step in steps:
        name = step.__name__
        keyed = op.key_on(f"key-{name}", items, lambda item: item[0])
        items = op.map(f"made-{name}", op.stateful_flat_map(name, keyed, step), lambda pair: pair[1])
    return items


flow = Dataflow(TASK["flow"])
source = KafkaSource(
    [TASK["kafka"]],
    [TASK["source"]],
    starting_offset=OFFSET_BEGINNING,
    add_config={"fetch.wait.max.ms": "5"},
    batch_size=BATCH,
)
given = op.input("source", flow, source)
results = of_documents(given) if TASK["flow"] in STEPS else counted(given)
messages = op.map("messages", results, lambda pair: KafkaSinkMessage(pair[0].encode(), pair[1]))
op.output("sink", messages, KafkaSink([TASK["kafka"]], TASK["sink"], add_config={"linger.ms": "0"}))
