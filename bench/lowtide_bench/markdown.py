"""The figures of several runs as tables of markdown, as `docs/benchmarks/latency.md` has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide_bench.sides import OTHERS, note, sides
from lowtide_bench.tables import Table, number, one_as_markdown

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
    columns = [column for result in results for column in sides(result, _mode(result))]
    return "\n\n".join([one_as_markdown(_figures(results)), one_as_markdown(_parts(results)), *note(columns)])


def ramp(result: Mapping[str, Any]) -> str:
    """Return a table of the limits, and one of the steps that led to them."""
    columns = sides(result, _mode(result))
    limits = Table("", _RAMP_HEAD, [(name, *_limits(side)) for name, side in columns])
    steps = zip(*(side["steps"] for _, side in columns), strict=True)
    lags = [(f"{step[0]['rate']:,}/s", *map(_lag, step)) for step in steps]
    table = Table("", ("lag at the end of a step, ms", *(name for name, _ in columns)), lags)
    return "\n\n".join([one_as_markdown(limits), one_as_markdown(table), *note(columns)])


def _limits(side: Mapping[str, Any]) -> Iterator[str]:
    for figure in ("sustained_per_s", "drained_per_s"):
        yield number(side[figure], 0)
    for share in (side.get(f"share_of_{other}", {}) for other in OTHERS):
        for figure in ("sustained_per_s", "drained_per_s"):
            yield number(share.get(figure), 2)
    yield _faults(side)


def _lag(step: Mapping[str, Any]) -> str:
    return number(step["lag_ms"], 0) + ("" if step["kept"] else " (not kept)")


def _mode(result: Mapping[str, Any]) -> str:
    return f"{result['flow']}, {result['grouping']}"


def _faults(side: Mapping[str, Any]) -> str:
    return ", ".join(number(side[name], 0) for name in ("lost", "duplicated", "faults"))


def _figures(results: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for result in results:
        rates = [f"{result['rate']:,}"]
        for name, side in sides(result, _mode(result)):
            rows.append((rates.pop() if rates else "", name, *_cells(side)))
    return Table("", _HEAD, rows)


def _cells(side: Mapping[str, Any]) -> Iterator[str]:
    yield number(side["sustained_per_s"], 0)
    for name in ("p50_ms", "p99_ms", "p99_all_ms", "boundary_stall_max_ms"):
        yield number(side[name], 1)
    yield _faults(side)
    yield number(side["cpu_s"], 1)
    yield number(side["workers_us_per_record"], 1)
    for other in OTHERS:
        known = side.get("ratios", {}).get(other, {})
        yield ", ".join(number(known.get(name), 1) for name in ("p50_ms", "p99_ms")) if known else "-"


def _parts(results: Sequence[Mapping[str, Any]]) -> Table:
    results = [result for result in results if "flow" in result["subjects"]]
    rows = []
    for name in dict.fromkeys(name for result in results for name in result["breakdown"]):
        parts = [result["breakdown"].get(name) for result in results]
        rows.append((name, *("" if part is None else _pair(part) for part in parts)))
    rows.append(("**all**", *map(_pair, results)))
    return Table("", ("part, p50 / p99 in ms", *(f"{result['rate']:,}/s" for result in results)), rows)


def _pair(part: Mapping[str, Any]) -> str:
    return f"{number(part['p50_ms'], 1)} / {number(part['p99_ms'], 1)}"
