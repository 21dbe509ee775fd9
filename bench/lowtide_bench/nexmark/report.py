"""The figures of `lowtide bench nexmark` as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.tables import Table, number


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return one row for each query."""
    title = f"Nexmark, {result['records']:,} events of backlog, then {result['rate']:,} a second for "
    title += f"{result['seconds']:g} s, seed {result['seed']}"
    rows = [
        (
            each["name"],
            "yes" if each["equal"] else "NO",
            number(each["records_per_s"], 0),
            number(each["p50_ms"], 1),
            number(each["p99_ms"], 1),
            number(each["results"], 0),
        )
        for each in result["queries"]
    ]
    yield Table(title, ("query", "equal", "records/s", "p50, ms", "p99, ms", "results"), rows)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    return f"{in_words(result['machine'])}; grouping {result['grouping']}"
