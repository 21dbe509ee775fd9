"""The figures of `lowtide bench state` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.tables import Table, number

MB = 1e6


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return the hosts beside each other, and what only the one on disk does."""
    disk, memory = result["disk"], result["memory"]
    asked = result["asked"]
    hosts = [host for host in (disk, memory) if host is not None]

    def row(label: str, *way: str, digits: int = 0, scale: float = 1.0) -> tuple[str, ...]:
        return (label, *(_number(host, way, digits, scale) for host in hosts))

    yield Table(
        f"{asked['keys']:,} keys, {asked['state_bytes']} bytes beside each count, {asked['memory_bytes'] / MB:,.0f} MB "
        f"of memory by {result['limited_by']}, state.memory_mb = {asked['memory_mb']}",
        ("", *("on disk", "in memory")[: len(hosts)]),
        [
            row("keys", "keys"),
            row("Zipf, records/s", "zipf", "records_per_s"),
            row("Zipf, keys found in memory, %", "zipf", "hit_share", digits=1, scale=100),
            row("uniform, records/s", "uniform", "records_per_s"),
            row("uniform, keys found in memory, %", "uniform", "hit_share", digits=1, scale=100),
            row(f"Zipf at {asked['rate']:,}/s, p50, ms", "paced", "p50_ms", digits=2),
            row(f"Zipf at {asked['rate']:,}/s, p99, ms", "paced", "p99_ms", digits=2),
            row("its own memory at most, MB", "memory", "anonymous_mb"),
            row("mapped pages at most, MB", "memory", "mapped_mb"),
        ],
    )
    snapshot, recovery, local = disk["snapshot"], result["recovery"], result.get("local_recovery")
    during = snapshot["meanwhile"]
    yield Table(
        "A snapshot and the recovery from it",
        ("", "on disk"),
        [
            ("written, s", number(snapshot["took_s"], 1)),
            ("pinned and forked, ms", number(snapshot["pinned_ms"], 1)),
            ("Parquet, MB", number(snapshot["bytes"] / MB, 0)),
            (f"Zipf at {asked['rate']:,}/s meanwhile, p99, ms", number(during["p99_ms"], 2)),
            ("recovered, s", number(recovery["took_s"], 1)),
            *([] if local is None else [("recovered with the machine's own copies, s", number(local["took_s"], 1))]),
            ("its own memory meanwhile, MB", number(recovery["memory"]["anonymous_mb"], 0)),
            ("keys without their state", number(recovery["lost"], 0)),
        ],
    )


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    return f"{in_words(result['machine'])}; one host, one thread, messages of {result['asked']['batch']} records"


def _number(host: Mapping[str, Any], way: tuple[str, ...], digits: int, scale: float) -> str:
    value: Any = host
    for name in way:
        value = value[name]
    return number(None if value is None else value * scale, digits)
