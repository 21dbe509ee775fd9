"""Avro in and out of a job on real Spark and Kafka, with a real schema registry: Apicurio's, by Confluent's API."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import pytest
from apicurio import Apicurio, apicurio
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from tests.judging import Judge, produce

import lowtide as lt
from lowtide.cli.snapshot import take
from lowtide.connectors.schema_registry import SchemaRegistry
from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.flow.formats.avro_schema import schema_text

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
LANES = 2
OLD = {"type": "record", "name": "Reading", "fields": [{"name": "sensorName", "type": "string"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "value", "type": "long"}, {"name": "place", "type": "string"}]}


@dataclass(frozen=True)
class Reading:
    sensor: Annotated[str, lt.Alias("sensorName")]
    value: int = 1


@dataclass(frozen=True)
class Placed:
    sensor: Annotated[str, lt.Alias("sensorName")]
    value: int = 1
    place: str = "nowhere"


Placed.__name__ = "Reading"
"""The same record, later: it got a field."""


def summed(total: int, reading: Reading) -> tuple[int, Reading]:
    return total + reading.value, replace(reading, value=total + reading.value)


def placed(total: int, reading: Placed) -> tuple[int, Placed]:
    return total + reading.value, replace(reading, value=total + reading.value)


def messages(registry: Apicurio, numbers: range) -> list[tuple[Any, int | None]]:
    """Readings of three sensors, half of them of an older writer, half of a newer one."""
    found: list[tuple[Any, int | None]] = []
    for number in numbers:
        schema: Any = NEW if number % 2 else OLD
        out = io.BytesIO()
        schemaless_writer(
            out, parse_schema(schema), {"sensorName": f"s{number % 3}", "value": number, "place": f"p{number}"}
        )
        found.append((b"\0" + registry.add(f"in-{number % 2}", json.dumps(schema)).to_bytes(4) + out.getvalue(), None))
    return found


def read(values: list[bytes], versions: list[dict[str, Any]]) -> list[Any]:
    schemas = {version["id"]: parse_schema(json.loads(version["schema"])) for version in versions}
    return [schemaless_reader(io.BytesIO(each[5:]), schemas[int.from_bytes(each[1:5])], None) for each in values]


def test_a_job_reads_and_writes_avro_over_a_change_of_its_records(
    spark: Spark, unique: Callable[[str], str], tmp_path: Path
) -> None:
    source, sink, dead = (spark.kafka.topic(name, LANES) for name in ("readings", "sums", "dead"))
    name = unique("avro")

    def flow(record: Any, function: Any) -> lt.Flow:
        flow = lt.Flow(name, dead_letters=lt.kafka(dead, lt.raw()))
        readings = flow.read("readings", lt.kafka(source, lt.avro(record))).key_by("sensor").scan("sum", function, 0)
        readings.write("sums", lt.kafka(sink, lt.avro(record), key="sensor"))
        return flow

    with apicurio(tmp_path) as registry:
        registry.demand("BACKWARD")  # As registries do where nothing is said: a later schema reads what is older.
        conf = spark.conf(registry__default__url=registry.url)
        first = [(b"\0\0\0\x27\x0f", None), *messages(registry, range(40))]
        produce(conf, source, {partition: first[partition::LANES] for partition in range(LANES)})
        with spark.job(flow(Reading, summed), registry__default__url=registry.url) as job:
            assert Judge(flow(Reading, summed), conf).right()
            take(job.client(), name, None, limit_s=60)
        second = messages(registry, range(40, 80))
        produce(conf, source, {partition: second[partition::LANES] for partition in range(LANES)})
        with spark.job(flow(Placed, placed), registry__default__url=registry.url):
            found = [each.value() for each in spark.kafka.messages(sink, 80)]
        versions = registry.versions(f"{sink}-value")
        assert [each["version"] for each in versions] == [1, 2], "each dataclass once, however often it is registered"
        assert sorted(int.from_bytes(each[1:5]) for each in found) == sorted(40 * [each["id"] for each in versions])
        sums = read(found, versions)
        for sensor in range(3):
            mine = [each for each in sums if each["sensorName"] == f"s{sensor}"]
            assert max(each["value"] for each in mine) == sum(n if n % 2 else 1 for n in range(sensor, 80, 3))
        places = [each["place"] for each in sums if "place" in each]
        assert sorted(places) == sorted(f"p{n}" if n % 2 else "nowhere" for n in range(40, 80))
        (letter,) = spark.kafka.messages(dead, 1)
        assert b"has no schema 9999" in dict(letter.headers())["lowtide.error"]
        registry.stop()
        with (
            pytest.raises(ServiceUnavailable, match="the schema registry does not answer"),
            spark.job(flow(Placed, placed), registry__default__url=registry.url, kafka__reach_limit_ms=2_000),
        ):
            pass


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    price: float
    count: int = 1


TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)
ADDED: list[tuple[Any, ...]] = [
    ("name", str, "é"),
    ("data", bytes, b"\xff"),
    ("amount", Annotated[Decimal, lt.Precision(18, 2)], Decimal("-1.50")),
    ("at", datetime, TEN),
    ("since", Annotated[datetime | None, lt.Epoch("ms")], TEN),
    ("day", date, date(2026, 1, 1)),
    ("hour", time, time(12)),
    ("uuid", UUID, UUID(int=7)),
    ("colour", Colour, Colour.RED),
    ("lines", tuple[Line, ...], (Line(1.5),)),
    ("line", Line | None, Line(0.5)),
    ("stock", dict[str, Line], field(default_factory=dict)),
    ("note", str | None, "none"),
    ("seen", datetime | None, None),
]


def test_a_registry_takes_fields_with_defaults_and_no_others(tmp_path: Path) -> None:
    def record(*fields: tuple[Any, ...]) -> Any:
        return make_dataclass("Grown", [("id", str), *fields], frozen=True)

    with apicurio(tmp_path) as server:
        server.demand("BACKWARD")
        registry = SchemaRegistry(server.url, 10.0)
        for each in ADDED:
            subject = f"with {each[0]}"
            numbers = [registry.register(subject, schema_text(made)) for made in (record(), record(each), record(each))]
            assert numbers[0] != numbers[1] == numbers[2]
            assert json.loads(registry.schema(numbers[1])) == json.loads(schema_text(record(each)))
        registry.register("all", schema_text(record()))
        registry.register("all", schema_text(record(*ADDED)))
        with pytest.raises(FlowError, match=r"rejects the flow's schema: .*409"):
            registry.register("all", schema_text(record(("more", int), *ADDED)))
