"""Text in columns: never cut, whatever the terminal's width, so that it can be read on by a program."""

from __future__ import annotations

from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The headings and rows, each column as wide as its widest cell, two spaces between columns."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
