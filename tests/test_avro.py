"""Avro in and out of a job on real Spark and Kafka, with a small server in the place of a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from registry_server import registry_server
from tests.judging import Judge, produce

import lowtide as lt
from lowtide.errors import ServiceUnavailable

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
LANES = 2
OLD = {"type": "record", "name": "Reading", "fields": [{"name": "sensorName", "type": "string"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "value", "type": "long"}]}


@dataclass(frozen=True)
class Reading:
    sensor: Annotated[str, lt.Alias("sensorName")]
    value: int = 1


def summed(total: int, reading: Reading) -> tuple[int, Reading]:
    return total + reading.value, replace(reading, value=total + reading.value)


def test_a_job_reads_and_writes_avro(spark: Spark, unique: Callable[[str], str]) -> None:
    source, sink, dead = (spark.kafka.topic(name, LANES) for name in ("readings", "sums", "dead"))
    flow = lt.Flow(unique("avro"), dead_letters=lt.kafka(dead, lt.raw()))
    readings = flow.read("readings", lt.kafka(source, lt.avro(Reading))).key_by("sensor").scan("sum", summed, 0)
    readings.write("sums", lt.kafka(sink, lt.avro(Reading), key="sensor"))
    with registry_server() as server:
        messages: list[tuple[Any, int | None]] = [(b"\0\0\0\0\x63", None)]
        for number in range(40):
            schema: Any = NEW if number % 2 else OLD
            out = io.BytesIO()
            schemaless_writer(out, parse_schema(schema), {"sensorName": f"s{number % 3}", "value": number})
            head = b"\0" + server.add("in", json.dumps(schema)).to_bytes(4)
            messages.append((head + out.getvalue(), None))
        conf = spark.conf(registry__default__url=server.url)
        produce(conf, source, {partition: messages[partition::LANES] for partition in range(LANES)})
        with spark.job(flow, registry__default__url=server.url):
            assert Judge(flow, conf).right()
        found = spark.kafka.messages(sink, 40)
        (number,) = server.subjects[f"{sink}-value"][:1]
        assert {each.value()[:5] for each in found} == {b"\0" + number.to_bytes(4)}
        schema = parse_schema(json.loads(server.schemas[number]))
        read: list[Any] = [schemaless_reader(io.BytesIO(each.value()[5:]), schema, None) for each in found]
        for sensor in range(3):
            last = max(each["value"] for each in read if each["sensorName"] == f"s{sensor}")
            assert last == sum(each if each % 2 else 1 for each in range(sensor, 40, 3))
        (letter,) = spark.kafka.messages(dead, 1)
        assert b"has no schema 99" in dict(letter.headers())["lowtide.error"]
        server.away = True
        with (
            pytest.raises(ServiceUnavailable, match="the schema registry does not answer"),
            spark.job(flow, registry__default__url=server.url, kafka__reach_limit_ms=2_000),
        ):
            pass
