"""The figures of `lowtide bench store` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.tables import Table, number

MB = 1e6
_FIGURES = (
    ("the worker pauses, ms", "pause_ms", 1),
    ("written, s", "write_s", 2),
    ("written, MB/s raw", "write_raw_mb_per_s", 1),
    ("written, MB/s of Parquet", "write_parquet_mb_per_s", 1),
    ("asked again, nothing changed, ms", "unchanged_ms", 2),
    ("read back, s", "read_s", 2),
    ("read back, MB/s raw", "read_raw_mb_per_s", 1),
    ("read back, MB/s of Parquet", "read_parquet_mb_per_s", 1),
)
_CHANGING = (
    ("the worker pauses, ms", "pause_ms", 1),
    ("written, s", "took_s", 2),
    ("CPU of the processes that write, s", "cpu_s", 2),
    ("MB", "mb", 2),
    ("parts", "parts", 0),
    ("of these whole", "whole", 0),
    ("a record before, µs", "feed_us", 2),
)
_STEPS = (("capture", "capture_s"), ("table", "table_s"), ("Parquet", "encode_s"), ("SHA-256", "checksum_s"))


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return the stores, each with its median, and the steps of writing."""
    steps, stores = result["steps"], result["stores"]
    rows = [(label, *(number(store[name]["median"], digits) for store in stores)) for label, name, digits in _FIGURES]
    beside = f" with {result['state_bytes']} bytes beside the count" if result["state_bytes"] else ""
    sizes = f"{steps['raw_bytes'] / MB:,.1f} MB raw, {steps['parquet_bytes'] / MB:,.1f} MB of Parquet"
    memory = f"{result['memory_bytes_per_key']} bytes of memory each"
    title = f"{result['keys']:,} keys{beside}, {memory}: {sizes} in {steps['parts']} parts"
    yield Table(title, ("", *(_kind(store["where"]) for store in stores)), rows)
    yield Table(
        "Where the time goes, one step after the other on one thread",
        ("step", "s", "MB/s raw"),
        [(label, number(steps[name], 2), number(_speed(steps, name), 0)) for label, name in _STEPS],
    )
    if "changing" in result:
        yield _after_changes(result["changing"])


def _after_changes(changing: Mapping[str, Any]) -> Table:
    """Return what snapshots cost after few changes, each way in the mean and at most."""
    rows = [
        (
            label,
            *(number(way[name][each], digits) for way in changing["ways"].values() for each in ("mean", "max")),
        )
        for label, name, digits in _CHANGING
    ]
    heads = [f"{way}, {each}" for way in changing["ways"] for each in ("mean", "most")]
    taken = ", ".join(f"{count} by {way}" for way, count in changing["snapshots"].items())
    title = f"snapshots: {taken}, {changing['changes']:,} records of random keys before each"
    return Table(title, ("", *heads), rows)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    return f"{in_words(result['machine'])}; medians of {result['trials']}, one worker"


def _kind(where: str) -> str:
    return {"s3": "S3", "az": "Azure"}.get(where.partition(":")[0], "folder")


def _speed(steps: Mapping[str, Any], name: str) -> float | None:
    return steps["raw_bytes"] / MB / steps[name] if steps[name] else None
