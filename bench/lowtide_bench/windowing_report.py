"""The figures of `lowtide bench windows` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.tables import Table, number


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Give the log that was worked off, the windows that closed, and the branch beside them."""
    if "backlog" in result:
        log = result["backlog"]
        rows = [(name, number(log[name]["records_per_s"], 0), number(log[name]["messages"], 0)) for name in SUBJECTS]
        title = f"{log['records']:,} records worked off: windows {log['windows_to_scan']:g} x scan"
        yield Table(title, ("", "records/s", "messages"), rows)
    if "closing" in result:
        closing = result["closing"]
        ends = [tuple(number(end[name], 0) for _, name in ENDS) for end in closing["windows"]]
        yield Table("Results after their window's end", tuple(label for label, _ in ENDS), ends)
        beside = [
            (label, *(number(closing[name][each], 1) for each in ("p50_ms", "p99_ms")))
            for label, name in (("none closes", "beside_quiet_ms"), ("windows close", "beside_closing_ms"))
        ]
        yield Table("The other branch while", ("", "p50, ms", "p99, ms"), beside)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    what = f"{result['keys']:,} keys, windows of {result['size_s']:g} s, {result['rate']:,} records/s"
    return f"{what}; {in_words(result['machine'])}"


SUBJECTS = ("scan", "windows")
ENDS = (
    ("results", "results"),
    ("first, ms", "first_ms"),
    ("p50, ms", "p50_ms"),
    ("p99, ms", "p99_ms"),
    ("last, ms", "last_ms"),
)
