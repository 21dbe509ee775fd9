"""The README's table of an object that `lowtide bench peers` has printed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide_bench.quiet import MARK, NOTE, mark

NOTHING = "-"


def table(result: Mapping[str, Any]) -> str:
    """Return markdown: a row per system, the rates as columns."""
    rates = list(dict.fromkeys(run["rate"] for run in result["runs"]))
    systems: dict[str, list[Mapping[str, Any]]] = {}
    for run in result["runs"]:
        systems.setdefault(run["system"], []).append(run)
    headings = ["", "delivery", "after one SIGKILL", *(f"{rate:,} records/s" for rate in rates), "sustained"]
    lines = [_line(headings), "|---" * len(headings) + "|"]
    lines += [_line(_cells(runs, rates)) for runs in systems.values()]
    return "\n".join([*lines, "", NOTE] if any(MARK in line for line in lines) else lines)


def _cells(runs: Sequence[Mapping[str, Any]], rates: Sequence[int]) -> list[str]:
    first = runs[0]
    of_rate = {run["rate"]: run for run in runs}
    latencies = [_latency(of_rate.get(rate, {})) for rate in rates]
    return [first["title"], first["delivery"], _kill(first), *latencies, _sustained(first)]


def _latency(run: Mapping[str, Any]) -> str:
    half, most = run.get("p50_ms"), run.get("p99_ms")
    if half is None:
        return "not measured" if "error" in run else NOTHING
    return f"{_milliseconds(half)} / {_milliseconds(most)} ms{mark(run)}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "∞"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _kill(run: Mapping[str, Any]) -> str:
    if run.get("lost") is None:
        return "not measured" if "error" in run else NOTHING
    found = [f"{run[name]:,} {name}" for name in ("lost", "duplicated", "wrong") if run[name]]
    return f"{', '.join(found) or 'nothing lost, doubled or wrong'} of {run['killed_of']:,}"


def _sustained(run: Mapping[str, Any]) -> str:
    rate = run.get("sustained_per_s")
    if rate is None:
        return "not measured" if "error" in run else NOTHING
    if rate == 0:
        return f"< {min(step['rate'] for step in run['steps']):,}/s"
    disturbed = mark({"marked": run.get("limit_marked")})
    return f"{'≥ ' if run['sustained_at_least'] else ''}{rate:,}/s{disturbed}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
