"""`lowtide run`: runs a flow, here or detached; `python flow.py` and spark-submit come here too."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide.flow import Flow
from lowtide.jobs.detaching import detach as start_detached
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.mark import new_life
from lowtide.jobs.process import Process
from lowtide.jobs.runner import Runner
from lowtide.jobs.state import JobState
from lowtide.loading import load_flow
from lowtide.spark.session import submitted


@click.command()
@click.argument("flow", required=False)
@click.option("--detach", is_flag=True, help="Return once the job is ready; it goes on under a supervisor.")
@click.option("--verbose", is_flag=True, help="Show what Spark and the workers say, instead of logging it.")
@click.option("--supervised", hidden=True, metavar="LIFE:LOCK")
@with_conf
@as_json
@click.pass_context
def run(
    context: click.Context,
    *,
    conf: Conf,
    flow: str | None,
    detach: bool,
    verbose: bool,
    supervised: str | None,
    as_json: bool,
) -> int:
    """Run FLOW (flow.py, or flow.py:name) until it is stopped, or ends by an error.

    SIGINT and SIGTERM stop it cleanly; a second SIGINT at once.
    """
    loaded = _flow(context, flow)
    if detach and submitted():
        raise click.UsageError("spark-submit cannot detach a job; run it with `lowtide run --detach`", context)
    if detach:
        return _detached(context, loaded, conf, as_json)
    folder = JobFolder(Path(conf.job.folder), loaded.name)
    if supervised:
        # The lock came with the descriptor, and is held as long as this process or its supervisor lives.
        life, _, lock = supervised.partition(":")
        os.set_inheritable(int(lock), False)
        state = Runner(loaded, conf, folder, life, Process.of(os.getppid())).run()
    else:
        folder.lock()
        state = Runner(loaded, conf, folder, new_life(), None).run(verbose=verbose)
    _show(state, as_json)
    return state.exit_code or 0


def _flow(context: click.Context, path: str | None) -> Flow:
    given = context.obj
    if isinstance(given, Flow):
        if path is not None:
            raise click.UsageError("this program runs its own flow and takes no other", context)
        return given
    if path is None:
        raise click.UsageError("Missing argument 'FLOW'.", context)
    return load_flow(path)


def _detached(context: click.Context, flow: Flow, conf: Conf, as_json: bool) -> int:
    options = _options(context.params)
    path = context.params["flow"]
    program = _this_program() if path is None else ["-m", "lowtide.cli", "run", path]
    state = start_detached(flow.name, conf, lambda token: [sys.executable, *program, *options, "--supervised", token])
    _show(state, as_json)
    if state.phase == "running":
        return 0
    click.echo(f"error: {state.cause}", err=True)
    return state.exit_code if state.exit_code is not None else 1


def _options(given: dict[str, Any]) -> list[str]:
    """The options of this command line that the runner needs as well."""
    options = [] if given["conf_file"] is None else ["--conf", str(given["conf_file"])]
    return [*options, *(text for setting in given["conf_settings"] for text in ("--set", setting))]


def _this_program() -> list[str]:
    """How Python was told to run this program: a file, or `-m module`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None:
        return [sys.argv[0]]
    return ["-m", spec.name.removesuffix(".__main__")]


def _show(state: JobState, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(state))
