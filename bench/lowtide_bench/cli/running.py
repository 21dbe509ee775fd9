"""Runs commands of `lowtide bench`: shows their progress and result, and ends them."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.console import Console

if TYPE_CHECKING:
    from pathlib import Path

    from lowtide_bench.cli.options import Printed
    from lowtide_bench.plot import Plot
    from lowtide_bench.tables import Table

PROGRESS_EVERY_S = 5.0
"""Interval of progress lines without a terminal to overwrite them on."""


class Report(Protocol):
    """A module that puts a result into words."""

    def tables(self, result: Any, /) -> Iterable[Table]:
        """Return its tables."""

    def origin(self, result: Any, /) -> str:
        """Return a line about their origin."""


def show(result: Mapping[str, Any], report: Report, form: Printed) -> None:
    """Print a result in the form that was asked for."""
    from lowtide_bench.tables import markdown, shown

    tables, origin = report.tables(result), report.origin(result)
    if form.markdown:
        click.echo(markdown(tables, origin))
    if form.as_json:
        click.echo(json.dumps(result))
    elif not form.markdown:
        Console().print(shown(tables, origin))


def draw(plots: Mapping[str, Plot], folder: Path | None) -> None:
    """Write pictures into the folder that was asked for; without one, none."""
    if folder is not None:
        from lowtide_bench.plot import draw as drawn

        drawn(plots, folder)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that everything it started is stopped; ignore a second one."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress() -> Iterator[Any]:
    """Return a function that shows progress on standard error."""
    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda what: status.update(f"{what} [dim]({time.monotonic() - began:.0f} s)[/dim]")
        return
    said_what, said_at = "", 0.0

    def say(what: str) -> None:
        nonlocal said_what, said_at
        kind, now = what.partition(":")[0], time.monotonic()
        if kind != said_what or now - said_at >= PROGRESS_EVERY_S:
            said_what, said_at = kind, now
            console.print(f"{now - began:5.1f} s  {what}")

    yield say
