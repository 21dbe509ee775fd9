"""A progress bar for what is counted; it is shown on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Told", "bar"]

Told = Callable[[int, int], None]
"""Told (done, of how many)."""


@contextmanager
def bar(what: str, unit: str = "parts") -> Iterator[Told]:
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
