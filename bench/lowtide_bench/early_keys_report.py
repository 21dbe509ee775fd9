"""The figures of `lowtide bench early-keys` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.quiet import mark
from lowtide_bench.tables import Table, number

_DELAYS = (
    ("other workers' lanes, p50, ms", "others_p50_ms"),
    ("p99, ms", "others_p99_ms"),
    ("the slow key's worker's lanes, p50, ms", "own_p50_ms"),
    ("p99, ms", "own_p99_ms"),
)
_COSTS = (
    ("flushes", "flushes", 0), ("acks", "acks", 0), ("notices", "notices", 0), ("tracker, s", "tracker_s", 2),
    ("service, s", "service_s", 2), ("workers, s", "workers_s", 2), ("JVM, s", "jvm_s", 2),
)  # fmt: skip
_RATIOS = (
    ("other workers' lanes, p50", "others_p50_ms"),
    ("other workers' lanes, p99", "others_p99_ms"),
    ("the slow key's worker's lanes, p99", "own_p99_ms"),
    ("acks", "acks"), ("notices", "notices"), ("CPU of the tracker", "tracker_s"), ("CPU of the service", "service_s"),
    ("CPU of the workers", "workers_s"), ("CPU of all of them and the JVM", "cpu_s"),
)  # fmt: skip


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return the delay of each turn, its cost, and the ratios of all together."""
    turns = [(_heading(turn), turn) for turn in result["turns"]]
    yield Table(
        f"{result['rate']:,} records/s",
        ("early keys, the slow key", *(label for label, _ in _DELAYS)),
        [(heading, *(number(turn[name], 1) for _, name in _DELAYS)) for heading, turn in turns],
    )
    yield Table(
        f"Cost in {result['seconds']:g} s",
        ("early keys, the slow key", *(label for label, _, _ in _COSTS)),
        [(heading, *(number(turn[name], digits) for _, name, digits in _COSTS)) for heading, turn in turns],
    )
    columns = (
        ("on ÷ off, no sleep", result["on_to_off_without_sleep"]),
        ("on ÷ off, with it", result["on_to_off_with_sleep"]),
        ("sleep ÷ none, off", result["sleep_to_none_off"]),
        ("sleep ÷ none, on", result["sleep_to_none_on"]),
    )
    yield Table(
        "Ratios of medians",
        ("", *(heading for heading, _ in columns)),
        [(label, *(number(found.get(name), 2) for _, found in columns)) for label, name in _RATIOS],
    )


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the setting of the measurement."""
    return (
        f"{in_words(result['machine'])}; {result['seconds']:g} s a turn after {result['warmup_s']:g} s, "
        f"{result['workers']} workers, {result['processes']} host processes, {result['lost']} records lost"
    )


def _heading(turn: Mapping[str, Any]) -> str:
    sleeps = f"sleeps {turn['sleep_ms']:g} ms" if turn["sleep_ms"] else "does not sleep"
    return f"{'on' if turn['early'] else 'off'}, {sleeps}{mark(turn)}"
