"""The figures of `lowtide bench snapshots` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide.bench.tables import Table, change, number

_MB = 1e6


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Give latency and gaps by variant, then the snapshots themselves."""
    title = f"{result['flow']} at {result['rate']:,} records/s, {result['state_keys']:,} keys in state"
    variants = result["variants"]
    headings = (
        "snapshots", "p50, ms", "to none", "p99, ms", "to none", "p99 with boundaries, ms", "longest, ms",
        "longest gap, ms", "over none, ms", "gap with boundaries, ms",
    )  # fmt: skip
    yield Table(title, headings, [_latency(variant) for variant in variants])
    yield Table("The snapshots", SNAPSHOT_HEADINGS, [snapshot_row(pace(each), each["snapshots"]) for each in variants])


SNAPSHOT_HEADINGS = (
    "snapshots", "taken", "failed", "left out", "parts, p50", "MB, p50", "until durable, s, p50", "max",
    "until committed, s, p50", "max", "worker held up, ms, p50", "max",
)  # fmt: skip


def snapshot_row(name: str, taken: Mapping[str, Any]) -> Sequence[str]:
    """Return a row under `SNAPSHOT_HEADINGS`."""
    size = taken["bytes_p50"]
    counts = (str(taken[figure]) for figure in ("taken", "failed", "left_out"))
    times = ("sealed_s_p50", "sealed_s_max", "committed_s_p50", "committed_s_max")
    return (
        name,
        *counts,
        number(taken["parts_p50"], 0),
        number(None if size is None else size / _MB, 1),
        *(number(taken[figure], 2) for figure in times),
        *(number(taken[figure], 1) for figure in ("pause_ms_p50", "pause_ms_max")),
    )


def pace(variant: Mapping[str, Any]) -> str:
    """Return a variant's name."""
    return f"every {variant['every_s']:g} s" if variant["every_s"] else "none"


def told(result: Mapping[str, Any]) -> str:
    """Return in a line where and how it was measured."""
    where = result["machine"]
    faults = ", ".join("-" if result[name] is None else str(result[name]) for name in ("lost", "duplicated", "faults"))
    return (
        f"{where['cores']} cores ({where['model']}), load {where['load']} before and {where['load_after']} after; "
        f"{result['rounds']} x {result['seconds']:g} s each, {result['grouping']}; lost, doubled, wrong: {faults}"
    )


def _latency(variant: Mapping[str, Any]) -> Sequence[str]:
    return (
        pace(variant),
        number(variant["p50_ms"], 1),
        change(variant["p50_change"]),
        number(variant["p99_ms"], 1),
        change(variant["p99_change"]),
        number(variant["p99_all_ms"], 1),
        number(variant["max_ms"], 1),
        number(variant["gap_quiet_max_ms"], 1),
        number(variant["gap_change_ms"], 1),
        number(variant["gap_max_ms"], 1),
    )
