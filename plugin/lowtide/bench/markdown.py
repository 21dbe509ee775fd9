"""The figures of several runs as tables of markdown, as `docs/benchmarks/latency.md` has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_HEAD = (
    "records/s", "", "received/s", "p50, ms", "p99, ms", "p99 with boundaries, ms", "longest stall at a boundary, ms",
    "lost, doubled, wrong", "CPU, s",
)  # fmt: skip


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Return two tables: each run beside its bare loop, and where the median goes."""
    return "\n".join([*_figures(results), "", *_parts(results)])


def _figures(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield _row(_HEAD)
    yield "|---" * len(_HEAD) + "|"
    for result in results:
        mode = f"{result['flow']}, {result['grouping']}" + ("" if result["tracking"] == "on" else ", untracked")
        for name, side, rate in ((mode, result, f"{result['rate']:,}"), ("bare loop", result["bare"], "")):
            yield _row((rate, name, *_cells(side)))


def _cells(side: Mapping[str, Any]) -> Iterator[str]:
    yield _number(side["sustained_per_s"], 0)
    for name in ("p50_ms", "p99_ms", "p99_all_ms", "boundary_stall_max_ms"):
        yield _number(side[name], 1)
    yield ", ".join(_number(side[name], 0) for name in ("lost", "duplicated", "faults"))
    yield _number(side["cpu_s"], 1)


def _parts(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for result in results for name in result["breakdown"]))
    yield _row(("part, p50 / p99 in ms", *(f"{result['rate']:,}/s" for result in results)))
    yield "|---" * (len(results) + 1) + "|"
    for name in names:
        parts = [result["breakdown"].get(name) for result in results]
        yield _row((name, *("" if part is None else _pair(part["p50_ms"], part["p99_ms"]) for part in parts)))
    yield _row(("**all**", *(_pair(result["p50_ms"], result["p99_ms"]) for result in results)))


def _pair(half: float | None, most: float | None) -> str:
    return f"{_number(half, 1)} / {_number(most, 1)}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
