"""The figures of `lowtide bench calls` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.quiet import mark
from lowtide_bench.tables import Table, number

_COLUMNS = ("p50_ms", "p90_ms", "p99_ms", "service_p50_ms")


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return a row for each turn, then the figures of all together."""
    rows = [
        (("with a call" if turn["calls"] else "without") + mark(turn), *(number(turn.get(n), 1) for n in _COLUMNS))
        for turn in result["turns"]
    ]
    yield Table(f"{result['rate']:,} records/s", ("", "p50, ms", "p90, ms", "p99, ms", "the service's p50, ms"), rows)
    yield Table(
        "The call",
        ("", ""),
        [
            ("p50 beyond the service's, ms", number(result["p50_over_service_ms"], 1)),
            (
                "a turn of a host's loop, p99, with a call less without, ms",
                number(result["host_turn_p99_moved_ms"], 1),
            ),
            ("calls/s, catching up", number(result["calls_per_s"], 0)),
            ("keys called twice", str(result["keys_called_twice"])),
            ("lost", str(result["lost"])),
        ],
    )


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the setting of the measurement."""
    return f"{in_words(result['machine'])}; {result['seconds']:g} s a turn, a service of {result['service_ms']:g} ms"
