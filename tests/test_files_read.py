"""Spark reads what `lt.files` writes: types, folders as columns, each record once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest

import lowtide as lt
from lowtide.conf import Conf
from lowtide.sinks.staged.contract import Carriage, StagedRow

pytestmark = pytest.mark.spark

HOUR = datetime(2026, 1, 31, 12, tzinfo=UTC)
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.sql.session.timeZone", "UTC").getOrCreate()
read = spark.read.parquet(sys.argv[1]).where("dt = '2026-01-31' and hour = 12").orderBy("id")
print(json.dumps(dict(read.dtypes)))
print(json.dumps([row.asDict(recursive=True) for row in read.collect()], default=str))
"""


@dataclass(frozen=True)
class Line:
    text: str


@dataclass(frozen=True)
class Order:
    id: int
    country: str | None
    price: Annotated[Decimal, lt.Precision(10, 2)]
    at: datetime
    lines: list[Line]
    notes: dict[str, int] | None = None


def test_spark_reads_each_record_once_and_the_folders_as_columns(tmp_path: Path) -> None:
    orders = [Order(n, ["DE", "a/b", None][n % 3], Decimal("1.50"), HOUR, [Line("x")], {"n": n}) for n in range(30)]
    pattern = f"{tmp_path}/dt={{tick:%Y-%m-%d}}/hour={{tick:%H}}/"
    sink = lt.files(pattern, lt.parquet(Order), partition_by=("country",))
    carrier = sink.carrier(Carriage("shop", "a", 0, "orders", 2, 10, sink.settings(Conf())))
    carrier.open({0: 0, 1: 0})
    first_ms = int(HOUR.timestamp() * 1000)
    values = [value for value in lt.json(Order).encode(orders) if value is not None]
    for lane in (0, 1):
        rows = enumerate(values[lane::2])
        carrier.take(lane, [StagedRow(offset, first_ms + 60_000 * offset, None, value) for offset, value in rows])
        carrier.mark(lane, first_ms + 3_600_000)
    carrier.settle(0.0)
    carrier.close()
    command, environment = [sys.executable, "-c", PROGRAM, str(tmp_path)], {**os.environ, "TZ": "UTC"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    types, read = map(json.loads, ran.stdout.splitlines()[-2:])
    assert types == {
        "id": "bigint",
        "country": "string",
        "price": "decimal(10,2)",
        "at": "timestamp",
        "lines": "array<struct<text:string>>",
        "notes": "map<string,bigint>",
        "dt": "date",
        "hour": "int",
    }
    assert [row["id"] for row in read] == list(range(30))
    assert [row["country"] for row in read] == [order.country for order in orders]
    assert read[1] == {
        "id": 1,
        "country": "a/b",
        "price": "1.50",
        "at": "2026-01-31 12:00:00",
        "lines": [{"text": "x"}],
        "notes": {"n": 1},
        "dt": "2026-01-31",
        "hour": 12,
    }
