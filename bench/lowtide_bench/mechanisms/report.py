"""The figures of `lowtide bench tracking` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide_bench.mechanisms.asked import MARKERS, MECHANISMS, TRACKER
from lowtide_bench.tables import Table, number
from lowtide_bench.tracking.report import origin

__all__ = ["origin", "tables"]

_HEADINGS = (
    "", "messages/s", "bytes/s", "bytes a record", "CPU, µs a record", "of it tracking", "delay p50, ms", "p99, ms",
    "sources behind p99, ms", "others, cores",
)  # fmt: skip
SWEEPS = {
    "by_nodes": ("nodes", "nodes", "{:,} nodes"),
    "by_depth": ("depth", "shuffles", "{:,} shuffles"),
    "by_period": ("period", "ms between notices", "a notice every {:,} ms"),
    "by_rate": ("rate", "records/s", "{:,} records/s"),
    "by_flush": ("flush", "ms between flushes", "a flush every {:,} ms"),
}
"""By its key in the result: the value that changes, its heading, and its words where it does not."""


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return a table for each value that changes."""
    usual = result["asked"]["usual"]
    for name, (across, heading, _) in SWEEPS.items():
        others = ", ".join(words.format(usual[key]) for key, _, words in SWEEPS.values() if key != across)
        # Nothing else flushes.
        shown = (TRACKER,) if across == "flush" else MECHANISMS
        rows = [row for case in result[name] for row in _rows(case, across, shown)]
        yield Table(f"By {heading}; {others}", (heading, *_HEADINGS), rows, words=(1,))


def _rows(case: Mapping[str, Any], across: str, shown: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for mechanism in shown:
        found = case[mechanism]
        told = mechanism in (MARKERS, TRACKER)
        yield (
            number(case[across], 0) if mechanism == shown[0] else "",
            mechanism,
            number(found["messages_per_s"] if told else None, 0),
            number(found["bytes_per_s"] if told else None, 0),
            number(found["bytes_per_record"] if told else None, 1),
            number(found["cpu_us_per_record"], 1),
            number(found["added_us_per_record"] if told else None, 1),
            number(found["delay_p50_ms"], 2),
            number(found["delay_p99_ms"], 2),
            number(found["behind_p99_ms"], 1),
            number(found["others_cores"], 2),
        )
