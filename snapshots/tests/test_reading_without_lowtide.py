"""The README's examples of reading state with DuckDB, pandas and Spark, run on the snapshot that is kept for good."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent / "README.md"
ROOT = Path(__file__).parent / "data" / "format-1"
COUNTS = {"be": 2, "to": 3, "潮": 2**40, None: None}


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
        assert rows[0] == ("be", 2, [1, 7])
        orders = connection.sql("SELECT key.customer, trace, child FROM 'shop/parts/last%20orders/*/*.parquet'")
        assert orders.fetchall() == [("Ebbe", 7, b""), ("Ebbe", 2**64 - 1, b"\x00\x00\x00\x01")]
        rates = connection.sql("SELECT state['SEK'] FROM 'shop/parts/rates/*/*.parquet'")
        assert rates.fetchall() == [(11.25,)]


def test_pandas_reads_state(examples: list[tuple[str, str]]) -> None:
    pd = pytest.importorskip("pandas")
    names: dict[str, Any] = {}
    exec(_example(examples, "python", "pandas"), names)  # The README's own text.
    found = {word: count for word, count in names["index"].itertuples(index=False) if not pd.isna(word)}
    assert found == {word: count for word, count in COUNTS.items() if word}
    assert len(names["index"]) == 4
    orders = pd.concat(map(pd.read_parquet, names["files"]("last orders")))
    assert list(orders["trace"]) == [7, 2**64 - 1]


@pytest.mark.spark
def test_spark_reads_state(examples: list[tuple[str, str]], tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    sql = pytest.importorskip("pyspark.sql")
    names: dict[str, Any] = {}
    exec(_example(examples, "python", "pandas"), names)
    settings = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(tmp_path)}
    spark = sql.SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    try:
        names |= {"spark": spark, "root": f"file:{ROOT}"}
        exec(_example(examples, "python", "spark.read"), names)
        assert {row.word: row["count"] for row in names["index"].collect()} == COUNTS
        orders = spark.read.parquet(*(f"file:{ROOT}/{name}" for name in names["files"]("last orders"))).select(
            "trace", "child", "record.amount"
        )
        assert sorted((int(row.trace), bytes(row.child), row.amount) for row in orders.collect()) == [
            (7, b"", 12.5),
            (2**64 - 1, b"\x00\x00\x00\x01", None),
        ]
    finally:
        spark.stop()
