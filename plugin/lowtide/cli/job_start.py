"""Runs a flow for a command: finds it, here or detached, from a commit or from the start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from lowtide.conf import Conf
from lowtide.driver.recovery import StartFrom
from lowtide.driver.spark_conf import conf_settings, submitted
from lowtide.flow.parameters import refuse_early, refuse_unasked, unasked
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.graph import FlowGraph
from lowtide.jobs.detached import detach
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.runner import Runner
from lowtide.jobs.state import JobState
from lowtide.process.identity import Process
from lowtide.process.mark import new_life
from lowtide.process.pandas_later import leave_pandas_for_later


@dataclass(frozen=True, slots=True)
class Running:
    """The process in which a command runs its flow.

    Attributes:
        detach: True: under a supervisor, and the command returns once the job is ready; else in its own process.
        verbose: True if Spark and the workers print to this process's output.
        supervised: `LIFE:LOCK`, as the supervisor that started this process gives it; None without a supervisor.
    """

    detach: bool
    verbose: bool
    supervised: str | None


def with_running(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--detach`, `--verbose` and the supervisor's hidden option, all as `running`."""

    @click.option("--detach", is_flag=True, help="Return once the job is ready; it keeps running under a supervisor.")
    @click.option("--verbose", is_flag=True, help="Show the output of Spark and the workers instead of logging it.")
    @click.option("--supervised", hidden=True, metavar="LIFE:LOCK")
    @wraps(command)
    def running(*args: Any, detach: bool, verbose: bool, supervised: str | None, **kwargs: Any) -> Any:
        return command(*args, running=Running(detach, verbose, supervised), **kwargs)

    return running


def flow_of(context: click.Context, path: str | None) -> FlowGraph:
    """Load the flow that the command line names, or take that of the program that runs itself."""
    leave_pandas_for_later()
    given = context.obj
    if isinstance(given, FlowGraph):
        if path is not None:
            raise click.UsageError("this program runs its own flow and takes no other", context)
        refuse_unasked(given.name, given.parameters)
        refuse_early(given.parameters)
        return given
    if path is None:
        raise click.UsageError("Missing argument 'FLOW'.", context)
    return load_flow(path)


def refuse_detaching(context: click.Context) -> None:
    """Refuse to detach what spark-submit runs: it ends with its program."""
    if submitted():
        raise click.UsageError("spark-submit cannot detach a job; run it with `lowtide run --detach`", context)


def run_flow(
    context: click.Context,
    flow: FlowGraph | Plan,
    conf: Conf,
    start: StartFrom,
    running: Running,
    *,
    as_json: bool,
    standby: bool = False,
) -> int:
    """Run a flow until it ends, or until it is ready under a supervisor, and return the exit code.

    Args:
        context: Of the command, with its `flow`, `conf_file` and `conf_settings`; a supervisor calls it again.
        flow: The flow; its plan, if it was compiled with this conf before.
        conf: Its conf.
        start: The commit or the beginning that it starts from.
        running: In this process or detached.
        as_json: True to print the last state.
        standby: True to wait until no other program runs the job.
    """
    for note in unasked(flow.parameters):
        click.echo(f"note: {note}", err=True)
    if running.detach:
        return _run_detached(context, flow.name, conf, start, as_json=as_json, standby=standby)
    folder = JobFolder(Path(conf.job.folder), flow.name)
    if running.supervised:
        # The lock came with the descriptor, and is held as long as this process or its supervisor lives.
        life, _, lock = running.supervised.partition(":")
        os.set_inheritable(int(lock), False)
        state = Runner(flow, conf, folder, life, Process.of(os.getppid()), start=start, standby=standby).run()
    else:
        folder.lock()
        runner = Runner(flow, conf, folder, new_life(), None, start=start, standby=standby)
        state = runner.run(verbose=running.verbose)
    _show(state, as_json)
    return state.exit_code or 0


def _run_detached(
    context: click.Context, name: str, conf: Conf, start: StartFrom, *, as_json: bool, standby: bool
) -> int:
    command, path = context.command.name, context.params["flow"]
    assert command is not None, "each command has its name from its function"
    own = [] if command == "run" else [command]  # A program runs its flow unless its arguments name another command.
    program = [*_this_program(), *own] if path is None else ["-m", "lowtide.cli", command, path]
    again = [sys.executable, *program, *_conf_options(context.params), *_start_options(start)]
    again += ["--standby"] if standby else []
    state = detach(name, conf, lambda token: [*again, "--supervised", token])
    _show(state, as_json)
    if state.phase in ("running", "standby", "finished"):
        return 0
    click.echo(f"error: {state.cause}", err=True)
    return state.exit_code if state.exit_code is not None else 1


def _conf_options(given: dict[str, Any]) -> list[str]:
    """The options of this command line that the runner needs as well."""
    options = [] if given["conf_file"] is None else ["--conf", str(given["conf_file"])]
    # The runner is a separate process, without this one's SparkSession.
    settings = [*(f"{key}={value}" for key, value in conf_settings().items()), *given["conf_settings"]]
    return [*options, *(text for setting in settings for text in ("--set", setting))]


def _start_options(start: StartFrom) -> list[str]:
    """The options that say where the runner begins; those of `recover` are given by `recover` alone."""
    options = ["--allow-no-state"] if start.no_state else []
    options += ["--require-state"] if start.require_state else []
    options += [] if start.floors_from is None else ["--floors-from", start.floors_from]
    options += [] if start.commit is None else ["--commit", start.commit]
    options += ["--verified", start.verified] if start.verified else []
    return options + (["--redeliver", "--despite-readers"] if start.redeliver else [])


def _this_program() -> list[str]:
    """Return Python's arguments for running this program: a file, or `-m module`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None:
        return [sys.argv[0]]
    return ["-m", spec.name.removesuffix(".__main__")]


def _show(state: JobState, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(state))
