"""The figures of `lowtide bench recovery` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.recovering import FIGURES, of
from lowtide_bench.tables import Table, number
from lowtide_bench.variants_report import pace, snapshots

_HEADINGS = (
    "killed", "job ready, s", "output back, s", "longest gap, s", "caught up, s", "behind the last commit, s",
)  # fmt: skip


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return the kills with their median and worst, then the snapshots."""
    keys = f"{result['state_keys']:,} keys in state before"
    rows = [(kill["who"], *_cells([kill[name] for name in FIGURES])) for kill in result["kills"]]
    rows += [(which, *_cells([result[of(name, which)] for name in FIGURES])) for which in ("p50", "max")]
    yield Table(
        f"{result['flow']} at {result['rate']:,} records/s, {keys}: SIGKILL of a {result['kill']}", _HEADINGS, rows
    )
    yield snapshots("The snapshots, p50 / worst", {pace(result["snapshot_every_s"]): result["snapshots"]})


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine, and whether everything came out once."""
    faults = ", ".join("-" if result[name] is None else str(result[name]) for name in ("lost", "duplicated", "faults"))
    return f"{in_words(result['machine'])}; lost, doubled, wrong: {faults}"


def _cells(values: Sequence[float | None]) -> list[str]:
    return [number(value, 2) for value in values]
