"""Protobuf in and out of a job on real Spark and Kafka: a generated class reaches the workers by its descriptor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from google.protobuf.type_pb2 import Field
from tests.judging import Judge, produce

import lowtide as lt

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
LANES = 2
COUNT = 40


@dataclass(frozen=True)
class Column:
    table: Annotated[str, lt.Key()]
    name: str
    place: Annotated[int, lt.Alias("number")]
    kind: Literal["TYPE_STRING", "TYPE_INT64"] = "TYPE_STRING"


def placed(last: int, column: Column) -> tuple[int, Column]:
    return last + column.place, replace(column, place=last + column.place)


def test_a_job_reads_and_writes_protobuf(spark: Spark, unique: Callable[[str], str]) -> None:
    source, sink, dead = (spark.kafka.topic(name, LANES) for name in ("columns", "placed", "dead"))
    form = lt.protobuf(Column, Field)
    flow = lt.Flow(unique("protobuf"), dead_letters=lt.kafka(dead, lt.raw()))
    columns = flow.read("columns", lt.kafka(source, form)).key_by("table").scan("placed", placed, 0)
    columns.write("placed", lt.kafka(sink, form))
    messages: list[tuple[Any, int | None]] = []
    for number in range(COUNT):
        value = Field(name=f"c{number}", number=number, kind=Field.TYPE_INT64 if number % 2 else Field.TYPE_STRING)
        messages.append((lt.Message(b"t%d" % (number % 3), value.SerializeToString()), None))
    messages.append((lt.Message(b"t", b"\xff"), None))
    conf = spark.conf()
    produce(conf, source, {partition: messages[partition::LANES] for partition in range(LANES)})
    with spark.job(flow):
        assert Judge(flow, conf).right()
    found = [(each.key(), Field.FromString(each.value())) for each in spark.kafka.messages(sink, COUNT)]
    assert {key for key, _ in found} == {b"t0", b"t1", b"t2"}
    assert {each.kind for _, each in found} == {Field.TYPE_INT64, Field.TYPE_STRING}
    (letter,) = spark.kafka.messages(dead, 1)
    assert letter.value() == b"\xff"
