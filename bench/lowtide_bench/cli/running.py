"""Runs commands of `lowtide bench`: shows their progress, ends them, and runs one under another's name."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

if TYPE_CHECKING:
    from lowtide_bench.tables import Table

__all__ = ["ended_by_sigterm", "one", "progress", "show"]

END_LIMIT_S = 60.0

PROGRESS_EVERY_S = 5.0
"""Interval of progress lines without a terminal to overwrite them on."""


def show(result: Mapping[str, Any], tables: Iterable[Table], told: str, *, as_json: bool, markdown: bool) -> None:
    """Print a result: tables, on a terminal or as markdown, and with `as_json` one object as the last line."""
    from lowtide_bench.tables import markdown as as_markdown
    from lowtide_bench.tables import shown

    if markdown:
        click.echo(as_markdown(tables, told))
    if as_json:
        click.echo(json.dumps(result))
    elif not markdown:
        Console().print(shown(tables, told))


def one(option: str, value: str) -> tuple[int, dict[str, Any]]:
    """Run this command line again in a process of its own, with one option set; return its exit code and its object."""
    # The last of an option given twice wins, so this command's arguments can be passed on as they are.
    given = [word for word in sys.argv[1:] if word != "--markdown"]
    command = [sys.executable, "-m", "lowtide.cli", *given, option, value, "--json"]
    with ended_by_sigterm():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            said, _ = process.communicate()
        except BaseException:
            # At a terminal Ctrl-C has gone to both; a second one would interrupt the child's clean-up.
            process.terminate()
            process.wait(END_LIMIT_S)
            raise
    return process.returncode, {} if process.returncode else json.loads(said.splitlines()[-1])


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
