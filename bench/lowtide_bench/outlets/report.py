"""The figures of `lowtide bench outlets` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.outlets.stores import STORES
from lowtide_bench.quiet import NOTE, mark
from lowtide_bench.tables import Table, number


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return a table of each part that was measured."""
    if "stores" in result:
        head = ("", "delivered, records/s", "of Kafka's", "visible, rows/s", "s until visible", "lost, doubled")
        stored = [_store(name, found) for name, found in result["stores"].items()]
        yield Table(f"A backlog of {result['records']:,} records is worked off", head, stored)
    if "paced" in result:
        paced = result["paced"]
        columns = ("", "count", "p50, ms", "p99, ms", "max, ms")
        names = {
            "rows": "a row in PostgreSQL, after its record was due",
            "files": "a file, after its period",
            "folders": "a folder's done.json, after its minute",
        }
        late = [_late(name + mark(paced), paced[kind]) for kind, name in names.items()]
        yield Table(f"At {paced['rate']:,} records/s", columns, late)
    if "postgres" in result:
        head = ("rows", "sink, p50, p99 ms", "bare statement, p50, p99 ms", "ratio of p50", "of p99", "sink, rows/s")
        sizes = [_size(size, found) for size, found in result["postgres"]["sizes"].items()]
        yield Table(f"PostgreSQL: {result['postgres']['deliveries']} deliveries beside the bare statement", head, sizes)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the setting of the measurement."""
    rounds = f", medians of {len(result['rounds'])}" if "rounds" in result else ""
    marked = any(
        each["marked"] for each in (*result.get("stores", {}).values(), result.get("paced", {"marked": False}))
    )
    note = f"; {NOTE}" if marked else ""
    return f"{in_words(result['machine'])}; {result['partitions']} partitions, {result['grouping']}{rounds}{note}"


def _store(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        STORES[name].title + mark(found),
        number(found["delivered_per_s"], 0),
        number(found["of_kafka"], 3),
        number(found["visible_per_s"], 0),
        number(found["visible_after_s"], 1),
        f"{found['lost']:,}, {found['duplicated']:,}",
    )


def _late(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    return (name, f"{found['count']:,}", *(number(found[each], 0) for each in ("p50_ms", "p99_ms", "max_ms")))


def _size(size: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    times = (f"{found[way]['p50_ms']:.2f}, {found[way]['p99_ms']:.2f}" for way in ("sink", "bare"))
    ratios = (number(found["ratios"][figure], 2) for figure in ("p50_ms", "p99_ms"))
    return (size, *times, *ratios, number(found["sink"]["rows_per_s"], 0))
