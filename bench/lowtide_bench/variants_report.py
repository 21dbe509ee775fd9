"""The figures of `lowtide bench snapshots` as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.quiet import shares
from lowtide_bench.tables import Table, change, number

_MB = 1e6
_LATENCY: Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]] = (
    ("p50, ms", lambda variant: number(variant["p50_ms"], 1)),
    ("p50, to none", lambda variant: change(variant["p50_change"])),
    ("p99, ms", lambda variant: number(variant["p99_ms"], 1)),
    ("p99, to none", lambda variant: change(variant["p99_change"])),
    ("p99 with epoch boundaries, ms", lambda variant: number(variant["p99_all_ms"], 1)),
    ("the same, to none", lambda variant: change(variant["p99_all_change"])),
    ("longest, ms", lambda variant: number(variant["max_ms"], 1)),
    ("longest gap without epoch boundaries, ms", lambda variant: number(variant["gap_quiet_max_ms"], 1)),
    ("over none, ms", lambda variant: number(variant["gap_change_ms"], 1)),
    ("longest gap, ms", lambda variant: number(variant["gap_max_ms"], 1)),
)
_SNAPSHOTS = (
    ("taken", "taken", 0),
    ("failed", "failed", 0),
    ("left out", "left_out", 0),
    ("parts written", "parts", 0),
    ("MB, shared parts too", "bytes", 1),
    ("until durable, s", "sealed_s", 2),
    ("until committed, s", "committed_s", 2),
    ("a worker held up, ms", "pause_ms", 1),
)


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return latency and gaps by variant, then the snapshots themselves."""
    variants = result["variants"]
    names = [pace(variant["every_s"]) for variant in variants]
    title = f"{result['flow']} at {result['rate']:,} records/s, {result['state_keys']:,} keys in state"
    yield Table(title, ("snapshots", *names), [(label, *map(shown, variants)) for label, shown in _LATENCY])
    yield snapshots(
        "The snapshots, p50 / worst", dict(zip(names, (each["snapshots"] for each in variants), strict=True))
    )


def snapshots(title: str, by_name: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a table of snapshots: for each name, the figures of `Pacer.of_turns`."""
    rows = [(label, *(_taken(each, name, digits) for each in by_name.values())) for label, name, digits in _SNAPSHOTS]
    return Table(title, ("", *by_name), rows)


def _taken(taken: Mapping[str, Any], name: str, digits: int) -> str:
    if name in taken:
        return number(taken[name], digits)
    unit = _MB if name == "bytes" else 1
    half, most = (
        None if taken[f"{name}_{which}"] is None else taken[f"{name}_{which}"] / unit for which in ("p50", "max")
    )
    return "-" if half is None else f"{number(half, digits)} / {number(most, digits)}"


def pace(every_s: float) -> str:
    """Return a variant's name."""
    return f"every {every_s:g} s" if every_s else "none"


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the setting of the measurement."""
    faults = ", ".join("-" if result[name] is None else str(result[name]) for name in ("lost", "duplicated", "faults"))
    return (
        f"{in_words(result['machine'])}; "
        f"{result['rounds']} x {result['seconds']:g} s each, {result['grouping']}; lost, doubled, wrong: {faults}; "
        f"{shares(result)}"
    )
