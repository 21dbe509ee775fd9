"""The figures of several runs as tables of markdown, as `docs/benchmarks/latency.md` has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide_bench.sides import OTHERS, sides

_HEAD = (
    "records/s", "", "received/s", "p50, ms", "p99, ms", "p99 with boundaries, ms", "longest stall at a boundary, ms",
    "lost, doubled, wrong", "CPU, s", "workers, us per record",
    *(f"p50, p99 by {heading}'s" for heading in ("the bare loop", "the skeleton")),
)  # fmt: skip
_RAMP_HEAD = (
    "", "sustained/s", "backlog drained/s", "sustained, of the bare loop", "drained, of the bare loop",
    "sustained, of the skeleton", "drained, of the skeleton", "lost, doubled, wrong",
)  # fmt: skip


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Return two tables: each run's flow beside the skeleton and the bare loop, and the flow's median by its parts."""
    return "\n".join([*_figures(results), "", *_parts(results)])


def ramp(result: Mapping[str, Any]) -> str:
    """Return a table of the limits, and one of the steps that led to them."""
    lines = [_row(_RAMP_HEAD), "|---" * len(_RAMP_HEAD) + "|"]
    columns = [*sides(result, _mode(result))]
    for name, side in columns:
        shares = [side.get(f"share_of_{other}", {}) for other in OTHERS]
        figures = (_number(side[figure], 0) for figure in ("sustained_per_s", "drained_per_s"))
        ratios = (_number(share.get(name), 2) for share in shares for name in ("sustained_per_s", "drained_per_s"))
        lines.append(_row((name, *figures, *ratios, _faults(side))))
    lines += ["", _row(("lag at the end of a step, ms", *(name for name, _ in columns)))]
    lines.append("|---" * (len(columns) + 1) + "|")
    for number, step in enumerate(columns[0][1]["steps"]):
        lags = (_lag(side["steps"][number]) for _, side in columns)
        lines.append(_row((f"{step['rate']:,}/s", *lags)))
    return "\n".join(lines)


def _lag(step: Mapping[str, Any]) -> str:
    return _number(step["lag_ms"], 0) + ("" if step["kept"] else " (not kept)")


def _mode(result: Mapping[str, Any]) -> str:
    return f"{result['flow']}, {result['grouping']}"


def _faults(side: Mapping[str, Any]) -> str:
    return ", ".join(_number(side[name], 0) for name in ("lost", "duplicated", "faults"))


def _figures(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield _row(_HEAD)
    yield "|---" * len(_HEAD) + "|"
    for result in results:
        rates = [f"{result['rate']:,}"]
        for name, side in sides(result, _mode(result)):
            yield _row((rates.pop() if rates else "", name, *_cells(side)))


def _cells(side: Mapping[str, Any]) -> Iterator[str]:
    yield _number(side["sustained_per_s"], 0)
    for name in ("p50_ms", "p99_ms", "p99_all_ms", "boundary_stall_max_ms"):
        yield _number(side[name], 1)
    yield _faults(side)
    yield _number(side["cpu_s"], 1)
    yield _number(side["workers_us_per_record"], 1)
    for other in OTHERS:
        known = side.get("ratios", {}).get(other, {})
        yield ", ".join(_number(known.get(name), 1) for name in ("p50_ms", "p99_ms")) if known else "-"


def _parts(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    results = [result for result in results if "flow" in result["subjects"]]
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
