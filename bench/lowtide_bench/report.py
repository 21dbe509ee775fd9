"""The figures as tables: a column for each subject, the ratios, CPU time and the breakdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lowtide_bench.machine import in_words
from lowtide_bench.sides import note, origin, sides
from lowtide_bench.tables import Table, number, rich_table
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
    ("CPU of others, share of a core", "others_share", 2),
    ("CPU of the machine, share of all cores", "machine_share", 2),
    ("tries until undisturbed", "tries", 0),
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
Columns = Sequence[tuple[str, Mapping[str, Any]]]


def report(result: Mapping[str, Any]) -> Group:
    """Return one run's figures as tables, and a line about the machine."""
    columns = sides(result, str(result["flow"]))
    epochs = max(len(side["boundary_stalls_ms"]) for _, side in columns)
    said = (
        f"{result['seconds']:g} s after {result['warmup_s']:g} s of warm-up; "
        f"p50 to p99 without the records that {epochs} epoch boundaries held up; {in_words(result['machine'])}"
    )
    keys = f", {result['state_keys']:,} keys in state before" if result["state_keys"] else ""
    every = {pace(result["snapshot_every_s"]): result["snapshots"]} if result["snapshot_every_s"] else {}
    parts: list[RenderableType] = [
        rich_table(_figures(result, columns)),
        Text(origin(result)),
        rich_table(_cpu(columns)),
    ]
    parts += [rich_table(snapshots(f"snapshots{keys}, p50 / worst", every))] if every else []
    parts += [rich_table(_breakdown(result))] if "flow" in result["subjects"] else []
    return Group(*parts, Text("\n".join([said, *note(columns)]), style="dim"))


def _figures(result: Mapping[str, Any], columns: Columns) -> Table:
    rows = [(label, *(number(side[name], digits) for _, side in columns)) for label, name, digits in _ROWS]
    return Table(f"{result['flow']} at {result['rate']} records/s", _headings(columns), rows)


def _cpu(columns: Columns) -> Table:
    used = [(label, [side["cpu_by_process_s"].get(role) for _, side in columns]) for label, role in _ROLES]
    rows = [(label, *(number(each, 2) for each in times)) for label, times in used if any(times)]
    return Table("CPU in the window, s", _headings(columns), rows)


def _headings(columns: Columns) -> tuple[str, ...]:
    return ("", *(name for name, _ in columns))


def _breakdown(result: Mapping[str, Any]) -> Table:
    rows = [
        (name, number(part["p50_ms"], 2), number(part["p99_ms"], 2), part["how"], part["means"])
        for name, part in result["breakdown"].items()
    ]
    return Table("where the time goes", ("part", "p50, ms", "p99, ms", "how", "from -> to"), rows, (0, 3, 4))
