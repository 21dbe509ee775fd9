"""The figures of `lowtide bench forgetting` as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.tables import Table, number


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return a row for each step: its memory after the first and the last tenth of the keys."""
    rows = [
        (
            step,
            number(found["rss_mb"][0], 1),
            number(found["rss_mb"][-1], 1),
            number(found["grown_mb"], 1),
            f"{found['keys_per_s']:,}",
        )
        for step, found in result["steps"].items()
    ]
    title = f"{result['keys']:,} keys, each once; kept for {result['kept_ms']} ms of log time"
    head = ("", "MB after a tenth", "MB at the end", "grown, MB", "keys/s")
    yield Table(title, head, rows)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    return f"{in_words(result['machine'])}; one worker, without Spark and Kafka"
