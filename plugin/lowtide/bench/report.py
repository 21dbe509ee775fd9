"""The figures for people: two columns and the breakdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowtide.bench.tables import rich_table
from lowtide.bench.variants_report import pace, snapshots

_ROWS = (
    ("sustained, records/s", "sustained_per_s", 0),
    ("p50, ms", "p50_ms", 1),
    ("p90, ms", "p90_ms", 1),
    ("p99, ms", "p99_ms", 1),
    ("p99 with epoch boundaries, ms", "p99_all_ms", 1),
    ("longest, ms", "max_ms", 1),
    ("longest stall at a boundary, ms", "boundary_stall_max_ms", 1),
    ("longest gap in output, ms", "gap_max_ms", 1),
    ("longest gap without epoch boundaries, ms", "gap_quiet_max_ms", 1),
    ("the same while a snapshot was taken, ms", "gap_with_snapshot_ms", 1),
    ("the same while none was, ms", "gap_without_snapshot_ms", 1),
    ("lost", "lost", 0),
    ("duplicated", "duplicated", 0),
    ("wrong counts", "faults", 0),
    ("CPU, s", "cpu_s", 1),
    ("CPU of others on the machine, s", "others_cpu_s", 1),
    ("start to first record, s", "start_s", 1),
    ("generator behind schedule, p99, ms", "generator_lag_p99_ms", 1),
)


def report(result: Mapping[str, Any]) -> Group:
    """Return one run's figures as two tables and a line about the machine."""
    where = result["machine"]
    epochs = len(result["boundary_stalls_ms"])
    told = (
        f"{result['seconds']:g} s after {result['warmup_s']:g} s of warm-up, {epochs} epoch boundaries; "
        f"{where['cores']} cores ({where['model']}), load {where['load']} before and {where['load_after']} after"
    )
    keys = f", {result['state_keys']:,} keys in state before" if result["state_keys"] else ""
    every = {pace(result["snapshot_every_s"]): result["snapshots"]} if result["snapshot_every_s"] else {}
    taken = [rich_table(snapshots(f"snapshots{keys}, p50 / worst", every))] if every else []
    return Group(_figures(result), *taken, _breakdown(result), Text(told, style="dim"))


def _figures(result: Mapping[str, Any]) -> Table:
    table = Table(title=f"{result['flow']} at {result['rate']} records/s", title_justify="left")
    table.add_column("")
    table.add_column(str(result["flow"]), justify="right")
    table.add_column("bare loop", justify="right")
    for label, name, digits in _ROWS:
        table.add_row(label, _number(result[name], digits), _number(result["bare"][name], digits))
    return table


def _breakdown(result: Mapping[str, Any]) -> Table:
    table = Table(title="where the time goes", title_justify="left")
    table.add_column("part")
    table.add_column("p50, ms", justify="right")
    table.add_column("p99, ms", justify="right")
    table.add_column("how")
    table.add_column("from -> to")
    for name, part in result["breakdown"].items():
        table.add_row(name, _number(part["p50_ms"], 2), _number(part["p99_ms"], 2), part["how"], part["means"])
    return table


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
