"""Spark reads the tables that a job writes: rows, kinds of columns, each row once over several commits.

Lowtide's own Spark is newer than any that Delta's and Iceberg's jars are made for, so the reader is another one, in an
environment of its own; it and the jars are fetched the first time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.test_wheels import ROOT, ran, uv_variables

import lowtide as lt
from lowtide.cache import cache_folder
from lowtide.conf import Conf
from lowtide.jars.third_party import ivy_command
from lowtide.sinks.staged.contract import Carriage, StagedRow

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
SPARK = "4.1.1"
JARS = {
    "delta": ["io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"],
    "iceberg": ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"],
}
COMMITS, ROWS = 4, 25
FIRST_MS = 1_700_000_000_000
MODULE = """<ivy-module version="2.0">
  <info organisation="lowtide" module="lake"/>
  <configurations><conf name="jars"/></configurations>
  <dependencies>
    <dependency org="{group}" name="{artifact}" rev="{version}" transitive="false" conf="jars->master"/>
  </dependencies>
</ivy-module>
"""
READER = """
import json, sys
from pyspark.sql import SparkSession

kind, place, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "1")
if kind == "delta":
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
read = builder.getOrCreate().read.format(kind).load(place)
print("ROWS " + json.dumps([row.asDict(recursive=True) for row in read.collect()], default=str))
"""


@dataclass(frozen=True)
class Item:
    name: str
    count: int


@dataclass(frozen=True)
class Order:
    user: str
    number: int
    price: float
    paid: bool
    at: datetime
    day: date
    total: Annotated[Decimal, lt.Precision(18, 2)]
    note: str | None
    tags: list[str]
    items: list[Item]


def order(number: int) -> Order:
    at = datetime(2026, 11, 27, 12, tzinfo=UTC) + timedelta(seconds=number, microseconds=number + 1)
    return Order(
        user=f"user-{number % 7}",
        number=number,
        price=number / 4,
        paid=number % 2 == 0,
        at=at,
        day=at.date(),
        total=Decimal(number) / 4,
        note=None if number % 3 == 0 else f"note {number} ø",
        tags=["a", "b"],
        items=[Item(f"thing {each}", each) for each in range(number % 4)],
    )


def jars_of(kind: str) -> str:
    """The jars with which Spark reads a kind of tables."""
    folder = cache_folder() / "lake-jars"
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in JARS[kind]:
        group, artifact, version = name.split(":")
        path = folder / f"{artifact}-{version}.jar"
        if not path.exists():
            module = folder / "ivy.xml"
            module.write_text(MODULE.format(group=group, artifact=artifact, version=version))
            pattern = f"{folder}/[artifact]-[revision].[ext]"
            ran(*ivy_command(module, cache_folder() / "ivy"), "-confs", "jars", "-types", "jar", "-retrieve", pattern)
        paths.append(str(path))
    return ",".join(paths)


def in_spark(kind: str, place: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of a table as Spark reads it."""
    uv = ran(sys.executable, ROOT / "tools/environment.py", "uv").stdout.strip()
    reader = folder / "reader.py"
    reader.write_text(READER)
    run = [uv, "run", "--quiet", "--no-project", "--isolated", "--with", f"pyspark=={SPARK}"]
    run += ["--python", sys._base_executable, "python", str(reader)]  # type: ignore[attr-defined]
    command, variables = [*run, kind, place, jars_of(kind)], uv_variables() | {"TZ": "UTC"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=folder)
    rows = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    assert rows, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(rows[0].removeprefix("ROWS "))
    return found


def as_spark_says(row: Order) -> dict[str, Any]:
    """A record as the reader prints it."""
    return asdict(row) | {"at": str(row.at.replace(tzinfo=None)), "day": str(row.day), "total": f"{row.total:.2f}"}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_reads_each_row_once(kind: str, tmp_path: Path) -> None:
    place, uri = tmp_path / "orders", f"sqlite:///{tmp_path}/catalog.db"
    told = {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}
    conf = Conf.load(None, {f"iceberg.default.{key}": value for key, value in told.items()})
    sink: Any = lt.delta(str(place), Order) if kind == "delta" else lt.iceberg("lake.orders", Order)
    orders = [order(number) for number in range(COMMITS * ROWS)]
    values = lt.json(Order).encode(orders)
    for commit in range(COMMITS):
        # A new carrier each time, as after a kill: it reads the position from the table.
        carrier = sink.carrier(Carriage("shop", "5f", 0, "table", 1, 1, sink.settings(conf)))
        (begins,) = carrier.open({0: 0}).values()
        assert begins == commit * ROWS
        chosen = range(begins, begins + ROWS)
        carrier.take(0, [StagedRow(offset, FIRST_MS + offset, None, values[offset] or b"") for offset in chosen])
        carrier.settle(float("inf"))
        carrier.close()
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        place = Path(load_catalog(**told).load_table("lake.orders").metadata_location.removeprefix("file://"))
    found = in_spark(kind, str(place), tmp_path)
    assert sorted(found, key=lambda row: row["number"]) == [as_spark_says(each) for each in orders]
