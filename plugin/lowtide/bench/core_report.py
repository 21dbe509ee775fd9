"""The core's figures for people: as tables, and as markdown for `docs/benchmarks/core.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group

from lowtide.bench import tables as bench_tables
from lowtide.bench.tables import Table

GOALS = {
    "acks_per_s": 500_000,
    "label_per_s": 3_000_000,
    "scan_per_s": 300_000,
    "scan_ordered_per_s": 300_000,
    "group_per_s": 200_000,
    "group_ordered_per_s": 200_000,
    "barrier_per_s": 1_000_000,
}
"""What each figure should be at least."""
_MEANS = {
    "acks_per_s": "entries/s from bytes, flushes of 20",
    "acks_in_process_per_s": "the same as values",
    "local_fold_per_s": "folds/s of workers, flushes included",
    "notify_p50_ms": "flush sent to notice heard, at 10,000 entries/s",
    "notify_p99_ms": "the same",
    "label_per_s": "records/s, batches of 10,000",
    "scan_per_s": "records/s, optimistic, batches of 1,000",
    "scan_ordered_per_s": "records/s, ordered, batches of 1,000",
    "group_per_s": "last(2), records/s, optimistic, batches of 1,000",
    "group_ordered_per_s": "last(2), records/s, ordered, batches of 1,000",
    "barrier_per_s": "records/s, columns, batches of 10,000",
}


def report(result: Mapping[str, Any]) -> Group:
    """Return the figures as tables and a line about the machine."""
    return bench_tables.shown(tables(result), _where(result))


def markdown(result: Mapping[str, Any]) -> str:
    """Return the same as markdown."""
    return bench_tables.markdown(tables(result), _where(result))


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Give all tables, the figures with goals first."""
    variants = result["variants"]
    yield Table(
        "Figures", ("figure", "median", "best trial", "goal", "means"), [_figure(name, result) for name in _MEANS]
    )
    sizes = list(variants["label"])
    for step, name in (("scan", "scan"), ("last", "last(2)")):
        yield Table(
            f"{name}, records/s, by records in a batch",
            ("", *map(_size, sizes)),
            list(_grouping(variants[step], sizes)),
        )
    rows = [_row("label", [variants["label"][size]["label_per_s"] for size in sizes])]
    rows += [_row("front: label, hand out, report", [variants["label"][size]["front_per_s"] for size in sizes])]
    rows += [
        _row(f"barrier, {what}", [each[size]["per_s"] for size in sizes]) for what, each in variants["barrier"].items()
    ]
    parts = next(iter(variants["exchange"].values()))
    rows += [
        _row(part.removesuffix("_per_s").replace("_", " "), [variants["exchange"][size][part] for size in sizes])
        for part in parts
    ]
    yield Table("Other parts, records/s, by records in a batch", ("", *map(_size, sizes)), rows)
    yield Table(
        "Garbage collector, batches of 1,000",
        ("", "defaults, records/s", "as in a worker", "longest pause, ms", "as in a worker"),
        [
            (
                name,
                *(_number(each[setting]["per_s"]["median"]) for setting in ("defaults", "worker")),
                *(f"{each[setting]['longest_pause_ms']:.1f}" for setting in ("defaults", "worker")),
            )
            for name, each in variants["collector"].items()
        ],
    )


def _figure(name: str, result: Mapping[str, Any]) -> tuple[str, ...]:
    best, goal = result["best"].get(name), GOALS.get(name)
    said = f"{result[name]:.2f}" if name.endswith("_ms") else _number(result[name])
    return name, said, "" if best is None else _number(best), "" if goal is None else _number(goal), _MEANS[name]


def _grouping(by_mode: Mapping[str, Any], sizes: Sequence[str]) -> Iterator[Sequence[str]]:
    for mode, by_order in by_mode.items():
        for order, by_size in by_order.items():
            said = f"{mode}, {order.replace('_', ' ')}"
            yield _row(said, [by_size[size]["per_s"] for size in sizes])
            yield _row(f"{said}, objects given", [by_size[size]["without_decode_per_s"] for size in sizes])
    late = by_mode["optimistic"]["two_fronts"]
    yield ("late, two fronts", *(f"{late[size]['late_share']:.1%}" for size in sizes))
    yield ("repairs, two fronts, optimistic", *(f"{late[size]['repairs_share']:.1%}" for size in sizes))


def _row(name: str, figures: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    return (name, *(_number(figure["median"]) for figure in figures))


def _size(size: str) -> str:
    return f"{int(size):,}"


def _number(value: float) -> str:
    """Three digits say all there is to say."""
    whole = round(value)
    return f"{round(whole, 3 - len(str(abs(whole)))):,}"


def _where(result: Mapping[str, Any]) -> str:
    where, found = result["machine"], result["versions"]
    packages = ", ".join(f"{name} {found[name]}" for name in ("python", "numpy", "pyarrow"))
    return (
        f"{where['cores']} cores ({where['model']}), one thread; other programs used {where['others_cores']} cores "
        f"meanwhile; {packages}"
    )
