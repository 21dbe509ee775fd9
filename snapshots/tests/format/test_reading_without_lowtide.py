"""The README's examples of reading state with DuckDB, pandas and Spark, run on the snapshot that is kept for good."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"
ROOT = Path(__file__).parents[1] / "data" / "format-6"
COUNTS = {"new": 6, "or": 1, "to": 5, "潮": 2**40, None: None}
"""The word "be" is gone, and "lost" of a hash unit for which its part does not count any more; see `test_golden.py`."""


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Language and text of each example; the current folder is the root of a store, as they ask for."""
    monkeypatch.chdir(ROOT)
    section = README.read_text().partition("## Reading parts without Lowtide\n")[2].partition("\n## ")[0]
    assert "import lowtide" not in section
    return re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)


def _example(examples: list[tuple[str, str]], language: str, word: str) -> str:
    (found,) = (text for said, text in examples if said == language and word in text)
    return found


def test_duckdb_reads_state(examples: list[tuple[str, str]]) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        rows = connection.execute(_example(examples, "sql", "read_parquet")).fetchall()
        assert {word: count for word, count, _ in rows} == COUNTS
        assert rows[0] == ("new", 6, [])
        orders = connection.sql("SELECT key.customer, trace, child FROM 'shop/parts/last%20orders/00002/*.parquet'")
        assert orders.fetchall() == [("Ebbe", 7, b""), ("Ebbe", 2**64 - 1, b"\x00\x00\x00\x01")]
        rates = connection.sql("SELECT state['SEK'] FROM 'shop/parts/rates/*/*.parquet'")
        assert rates.fetchall() == [(11.25,)]


def test_pandas_reads_state(examples: list[tuple[str, str]]) -> None:
    pd = pytest.importorskip("pandas")
    names: dict[str, Any] = {}
    exec(_example(examples, "python", "pandas"), names)  # The README's own text.
    found = {word: count for word, count in names["index"].itertuples(index=False) if not pd.isna(word)}
    assert found == {word: count for word, count in COUNTS.items() if word}
    assert len(names["index"]) == 5
    orders = pd.concat(map(pd.read_parquet, names["files"]("last orders")))
    assert list(orders["trace"]) == [2**64 - 1, 7, 2**64 - 1]


SPARK = """
import json, sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.sql.warehouse.dir", sys.argv[2]).getOrCreate()
)
root = f"file:{sys.argv[1]}"
{example}
counts = [[row.word, row["count"]] for row in index.collect()]
orders = spark.read.parquet(*(f"{root}/{name}" for name in files("last orders")))
orders = orders.select("trace", "child", "record.amount").collect()
found = [[int(row.trace), row.child.hex(), row.amount] for row in orders]
print(json.dumps([counts, sorted(found)]))
"""


@pytest.mark.spark
def test_spark_reads_state(examples: list[tuple[str, str]], tmp_path: Path) -> None:
    """In a process of its own: the first session decides what jars a process has."""
    pytest.importorskip("pyspark")
    example = _example(examples, "python", "pandas") + _example(examples, "python", "spark.read")
    program = SPARK.replace("{example}", example)
    run = subprocess.run(
        [sys.executable, "-c", program, ROOT, tmp_path], stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    counts, orders = json.loads(run.stdout)
    assert dict(counts) == COUNTS
    assert orders == [[7, "", 12.5], [2**64 - 1, "00000001", None], [2**64 - 1, "00000002", 3.5]]
