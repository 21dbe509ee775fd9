"""Figures as text in columns: on a terminal, and as markdown for the pages of `docs/benchmarks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Table:
    """Text in columns: words to the left, which are in the first column at least, numbers to the right.

    The title may be empty.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)


def shown(tables: Iterable[Table], origin: str) -> Group:
    """Return tables for a terminal, and a line about their origin."""
    return Group(*map(rich_table, tables), Text(origin, style="dim"))


def rich_table(table: Table) -> RichTable:
    """Return one table for a terminal; if that is too narrow, fold cells and cut none."""
    rich = RichTable(title=table.title, title_justify="left")
    for index, heading in enumerate(table.headings):
        rich.add_column(heading, justify="left" if index in table.words else "right", overflow="fold")
    for row in table.rows:
        rich.add_row(*row)
    return rich


def markdown(tables: Iterable[Table], origin: str) -> str:
    """Return the same as markdown."""
    return "\n\n".join([f"On {origin}:", *map(one_as_markdown, tables)])


def one_as_markdown(table: Table) -> str:
    """Return one table as markdown."""
    title = [f"**{table.title}**", ""] if table.title else []
    head = [
        _line(table.headings),
        _line(["---" if index in table.words else "---:" for index in range(len(table.headings))]),
    ]
    return "\n".join([*title, *head, *map(_line, table.rows)])


def number(value: float | None, digits: int) -> str:
    """Return a figure with this many digits after the point; a dash for none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def change(value: float | None) -> str:
    """Return a ratio less 1 in percent, with its sign; a dash for none."""
    return "-" if value is None else f"{value:+.1%}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
