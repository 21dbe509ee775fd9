"""Figures as text in columns: on a terminal, and as markdown for the pages of `docs/benchmarks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Table:
    """Text in columns: the first to the left, all others, numbers, to the right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def shown(tables: Iterable[Table], told: str) -> Group:
    """Return tables for a terminal, and a line about their origin."""
    return Group(*map(rich_table, tables), Text(told, style="dim"))


def rich_table(table: Table) -> RichTable:
    """Return one table for a terminal; if that is too narrow, fold cells and cut none."""
    rich = RichTable(title=table.title, title_justify="left")
    for index, heading in enumerate(table.headings):
        rich.add_column(heading, justify="right" if index else "left", overflow="fold")
    for row in table.rows:
        rich.add_row(*row)
    return rich


def markdown(tables: Iterable[Table], told: str) -> str:
    """Return the same as markdown."""
    parts = [f"On {told}:"]
    for table in tables:
        lines = [f"**{table.title}**", "", _line(table.headings), _line(["---", *["---:"] * (len(table.headings) - 1)])]
        parts.append("\n".join([*lines, *map(_line, table.rows)]))
    return "\n\n".join(parts)


def number(value: float | None, digits: int) -> str:
    """Return a figure with this many digits after the point; a dash for none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def change(value: float | None) -> str:
    """Return a ratio less 1 in percent, with its sign; a dash for none."""
    return "-" if value is None else f"{value:+.1%}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
