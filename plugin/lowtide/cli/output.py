"""Output for people: quantities in words, tables, a progress bar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from lowtide_snapshots.commits.moment import ms_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

if TYPE_CHECKING:
    _Milliseconds = click.ParamType[int]
    _Seconds = click.ParamType[float]
else:  # Older versions of click know no type of the value.
    _Milliseconds = _Seconds = click.ParamType


class IsoTime(_Milliseconds):
    """A time in ISO form, as milliseconds since 1970; without a zone it is UTC."""

    name = "iso"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the time in milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return ms_of(value)
        except ValueError:
            self.fail(f"{value!r} is not a time; write it as 2026-01-31T12:00:00, which is UTC", param, ctx)


class Age(_Seconds):
    """An age as `30d`, `12h`, `90m`, `45s` or seconds, in seconds."""

    name = "age"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the age in seconds."""
        if isinstance(value, float):
            return value
        found = _AGE.fullmatch(value)
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is not an age; write it as 30d, 12h, 90m or 45s", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


def time_of(time_ms: int | None) -> str:
    """Return a time in UTC to the millisecond; `-` for none."""
    if time_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}"


def size(count: int) -> str:
    """Return a number of bytes in the unit that people would use."""
    for limit, unit, name in ((KIB, 1, "bytes"), (MIB, KIB, "KiB"), (GIB, MIB, "MiB")):
        if count < limit:
            return f"{count} {name}" if unit == 1 else f"{count / unit:.1f} {name}"
    return f"{count / GIB:.1f} GiB"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The headings and rows, each column as wide as its widest cell, two spaces between columns."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


OnProgress = Callable[[int, int], None]
"""Called with (done, of how many)."""


@contextmanager
def bar(what: str, unit: str = "parts") -> Iterator[OnProgress]:
    """Show how far something is until the block ends, on standard error; call what it gives with each step."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        # What is counted may not be known at the beginning.
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
