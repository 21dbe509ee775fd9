"""The counts of `lowtide bench growth` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.growth.classes import NONE
from lowtide_bench.tables import Table, number
from lowtide_bench.tracking.report import origin

__all__ = ["origin", "tables"]


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return a table for each sweep: a count in each row."""
    for name, sweep in result["sweeps"].items():
        rows = [
            (
                count,
                *(number(each, 0 if each == round(each) else 1) for each in found["counted"]),
                _class(found["class"], found["documented"]),
            )
            for count, found in sweep["counts"].items()
        ]
        headings = (name, *(number(value, 0) for value in sweep["values"]), "grows")
        yield Table(f"By {sweep['title']}", headings, rows, words=(0, len(headings) - 1))


def _class(found: str, documented: str | None) -> str:
    said = "by none of these" if found == NONE else found
    return said if documented in (None, found) else f"{said}, not {documented}"
