"""The figures as tables: a column for each subject, the ratios, CPU time and the breakdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowtide_bench.sides import sides, told
from lowtide_bench.tables import rich_table
from lowtide_bench.variants_report import pace, snapshots

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
    ("CPU of its processes, s", "cpu_s", 1),
    ("CPU of others on the machine, s", "others_cpu_s", 1),
    ("workers' CPU, us per record", "workers_us_per_record", 1),
    ("start to first record, s", "start_s", 1),
    ("generator behind schedule, p99, ms", "generator_lag_p99_ms", 1),
)


_ROLES = (
    # Names as in `roles`: the subject's processes, then those around it.
    ("workers", "workers"), ("Spark's JVM", "jvm"), ("tracker", "tracker"), ("service", "service"),
    ("fork server", "fork_server"), ("bare loop", "loop"), ("around it: Kafka", "kafka"), ("generator", "generator"),
    ("reader", "reader"), ("ZooKeeper", "zookeeper"), ("Spark driver's Python, and the bench", "driver"),
)  # fmt: skip


def report(result: Mapping[str, Any]) -> Group:
    """Return one run's figures as tables, and a line about the machine."""
    where = result["machine"]
    columns = sides(result, str(result["flow"]))
    epochs = max(len(side["boundary_stalls_ms"]) for _, side in columns)
    said = (
        f"{result['seconds']:g} s after {result['warmup_s']:g} s of warm-up, the broker warmed for "
        f"{result['warm_s']:g} s before; p50 to p99 without the records that {epochs} epoch boundaries held up; "
        f"{where['cores']} cores ({where['model']}), load {where['load']} before and {where['load_after']} after"
    )
    keys = f", {result['state_keys']:,} keys in state before" if result["state_keys"] else ""
    every = {pace(result["snapshot_every_s"]): result["snapshots"]} if result["snapshot_every_s"] else {}
    parts: list[RenderableType] = [_figures(result), Text(told(result)), _cpu(columns)]
    parts += [rich_table(snapshots(f"snapshots{keys}, p50 / worst", every))] if every else []
    parts += [_breakdown(result)] if "flow" in result["subjects"] else []
    return Group(*parts, Text(said, style="dim"))


def _table(title: str, columns: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    return table


def _figures(result: Mapping[str, Any]) -> Table:
    columns = sides(result, str(result["flow"]))
    table = _table(f"{result['flow']} at {result['rate']} records/s", columns)
    for label, name, digits in _ROWS:
        table.add_row(label, *(_number(side[name], digits) for _, side in columns))
    return table


def _cpu(columns: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    table = _table("CPU in the window, s", columns)
    for label, role in _ROLES:
        used = [side["cpu_by_process_s"].get(role) for _, side in columns]
        if any(used):
            table.add_row(label, *(_number(each, 2) for each in used))
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
