"""Runs a flow for a command: finds it, here or detached, from a commit or from the start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from lowtide.conf import Conf
from lowtide.driver.recovery import StartFrom
from lowtide.driver.spark_conf import conf_settings, submitted
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.steps.graph import FlowGraph
from lowtide.jobs.detached import detach
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.runner import Runner
from lowtide.jobs.state import JobState
from lowtide.process.identity import Process
from lowtide.process.mark import new_life
from lowtide.process.pandas_later import leave_pandas_for_later

__all__ = ["flow_of", "refuse_detaching", "run_detached", "run_here", "with_running"]


def with_running(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--detach`, `--verbose`, and what a supervisor says to the runner that it starts."""
    for option in (
        click.option("--supervised", hidden=True, metavar="LIFE:LOCK"),
        click.option("--verbose", is_flag=True, help="Show what Spark and the workers say, instead of logging it."),
        click.option("--detach", is_flag=True, help="Return once the job is ready; it goes on under a supervisor."),
    ):
        command = option(command)
    return command


def flow_of(context: click.Context, path: str | None) -> FlowGraph:
    """Load the flow that the command line names, or take that of the program that runs itself."""
    leave_pandas_for_later()
    given = context.obj
    if isinstance(given, FlowGraph):
        if path is not None:
            raise click.UsageError("this program runs its own flow and takes no other", context)
        return given
    if path is None:
        raise click.UsageError("Missing argument 'FLOW'.", context)
    return load_flow(path)


def refuse_detaching(context: click.Context) -> None:
    """Refuse to detach what spark-submit runs: it ends with its program."""
    if submitted():
        raise click.UsageError("spark-submit cannot detach a job; run it with `lowtide run --detach`", context)


def run_here(
    flow: FlowGraph, conf: Conf, *, start: StartFrom, supervised: str | None, verbose: bool, as_json: bool
) -> int:
    """Run a flow in this process until it ends, and return its exit code.

    Args:
        flow: The flow.
        conf: Where and how.
        start: Where it begins.
        supervised: What the supervisor says, `LIFE:LOCK`; None where there is none.
        verbose: Whether Spark and the workers speak on this process's output.
        as_json: Whether to print the last state.
    """
    folder = JobFolder(Path(conf.job.folder), flow.name)
    if supervised:
        # The lock came with the descriptor, and is held as long as this process or its supervisor lives.
        life, _, lock = supervised.partition(":")
        os.set_inheritable(int(lock), False)
        state = Runner(flow, conf, folder, life, Process.of(os.getppid()), start=start).run()
    else:
        folder.lock()
        state = Runner(flow, conf, folder, new_life(), None, start=start).run(verbose=verbose)
    _show(state, as_json)
    return state.exit_code or 0


def run_detached(
    context: click.Context, flow: FlowGraph, conf: Conf, *, command: str, options: Sequence[str], as_json: bool
) -> int:
    """Start a flow under a supervisor, wait until it is ready, and return the exit code.

    Args:
        context: Of the command, with its `flow`, `conf_file` and `conf_settings`.
        flow: The flow.
        conf: Where and how.
        command: What the supervisor calls: "run" or "recover".
        options: What it gives to that command besides the conf.
        as_json: Whether to print the state.
    """
    path = context.params["flow"]
    own = [] if command == "run" else [command]  # A program runs its flow, unless it is told otherwise.
    program = [*_this_program(), *own] if path is None else ["-m", "lowtide.cli", command, path]
    told = [sys.executable, *program, *_conf_options(context.params), *options]
    state = detach(flow.name, conf, lambda token: [*told, "--supervised", token])
    _show(state, as_json)
    if state.phase in ("running", "finished"):
        return 0
    click.echo(f"error: {state.cause}", err=True)
    return state.exit_code if state.exit_code is not None else 1


def _conf_options(given: dict[str, Any]) -> list[str]:
    """The options of this command line that the runner needs as well."""
    options = [] if given["conf_file"] is None else ["--conf", str(given["conf_file"])]
    # The runner is a process of its own, without this one's SparkSession.
    settings = [*(f"{key}={value}" for key, value in conf_settings().items()), *given["conf_settings"]]
    return [*options, *(text for setting in settings for text in ("--set", setting))]


def _this_program() -> list[str]:
    """How Python was told to run this program: a file, or `-m module`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None:
        return [sys.argv[0]]
    return ["-m", spec.name.removesuffix(".__main__")]


def _show(state: JobState, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(state))
