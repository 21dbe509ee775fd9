"""`lowtide status` and `lowtide stop`: the jobs of a folder, from outside."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from lowtide.cli.hand_over import awaited_successor, hand_over
from lowtide.cli.job_page import open_page
from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import table
from lowtide.cli.running_jobs import control_of, only_job
from lowtide.cli.snapshot import described, take
from lowtide.cli.status_page import show
from lowtide.conf import Conf
from lowtide.errors import LifeEnded, LowtideError, NotRunning, SnapshotFailed
from lowtide.jobs.detached import SUPERVISORS_MARGIN_S
from lowtide.jobs.figures import Figures, ask_figures, ask_view, duration
from lowtide.jobs.folder import JobFolder, states
from lowtide.jobs.job_end import JobEnd, end_job
from lowtide.jobs.state import JobState
from lowtide.jobs.supervisor import LEFT_OVER_GRACE_S
from lowtide.process.mark import marked
from lowtide.status.job_view import JobView, SnapshotView
from lowtide_snapshots.cause import Cause

STOP_MARGIN_S = SUPERVISORS_MARGIN_S + LEFT_OVER_GRACE_S + 2.0
"""The job keeps the limit itself, its supervisor after it; only then is it killed from here."""
WATCH_S = 2.0
Looked = tuple[JobFolder, JobState, Figures | None, JobView | None]
HEADINGS = ("job", "state", "process", "since (UTC)", "in", "out", "workers", "lag", "")


@click.command()
@click.argument("name", required=False)
@click.option("--open", "opens", is_flag=True, help="Open the page of the job NAME, or of the only one that runs.")
@click.option("--watch", is_flag=True, help=f"Look again every {WATCH_S:g} s, until Ctrl-C.")
@with_conf
@as_json
def status(*, conf: Conf, name: str | None, opens: bool, watch: bool, as_json: bool) -> None:
    """Show all jobs of [job].folder: the running ones, and how and why the others ended.

    With NAME, show one job in full: its lag and what holds it up, its latency, segments, fronts and workers. With
    --open, show the same in a browser, over time.
    """
    if watch and (opens or as_json):
        raise click.UsageError("--watch shows text, again and again: leave out --open and --json")
    root = Path(conf.job.folder)
    folder = None if name is None else JobFolder.find(root, name)
    if opens:
        folder = only_job(root) if folder is None else folder
        state = folder.state()
        assert state is not None, "a job that was found has one"
        open_page(folder, state.seen())
        return
    try:
        while True:
            looked = _looked(root, name)
            if watch:
                click.clear()
                click.echo(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, again every {WATCH_S:g} s\n")
            _show(root, name, looked, as_json=as_json)
            if not watch:
                return
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        if not watch:
            raise


def _looked(root: Path, name: str | None) -> list[Looked]:
    """Look at all jobs of a folder, or at one of them."""
    found = [(folder, state) for folder, state in states(root) if name in (None, state.name)]
    return [(folder, state, *_ask(folder, state)) for folder, state in found]


def _show(root: Path, name: str | None, looked: list[Looked], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_as_object(*each) for each in looked], indent=2))
    elif name is not None and looked and (view := looked[0][3]) is not None:
        show(view)
    elif not looked:
        click.echo(f"no jobs in {root}; start one: lowtide run flow.py --detach")
    else:
        click.echo(table(HEADINGS, [_row(state, figures, view) for _, state, figures, view in looked]))
        for folder, state, _, _ in looked:
            if "\n" in str(state.cause):
                click.echo(f'\njob "{state.name}" has {state.phase}; log: {folder.log_file}\n{state.cause}')


@click.command()
@click.argument("name", required=False)
@click.option("--timeout", type=float, help="Kill the job after this many seconds; by default a little over its limit.")
@click.option("--with-snapshot", is_flag=True, help="Take and commit a snapshot first; if that fails, do not stop.")
@click.option("--hand-over", "hands_over", is_flag=True, help="Let a standby continue it at once, from that snapshot.")
@click.option("--force", is_flag=True, help="Stop it even if that snapshot fails.")
@with_conf
@as_json
def stop(
    *,
    conf: Conf,
    name: str | None,
    timeout: float | None,
    with_snapshot: bool,
    hands_over: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Stop the job NAME, or the only one that runs; exits with 5 if it had to be killed.

    It first delivers what its sinks already have; the next start reads the rest again. After [job].stop_limit_s, it is
    killed with all its processes. The job's standbys, on whatever machine, end with it. With --hand-over the job takes
    and commits a snapshot and stops, and a standby continues it; without a standby that is ready nothing is done.
    """
    if force and not (with_snapshot or hands_over):
        raise click.UsageError("--force needs --with-snapshot or --hand-over")
    root = Path(conf.job.folder)
    folder = JobFolder.find(root, name) if name is not None else only_job(root)
    limit_s = conf.job.stop_limit_s + STOP_MARGIN_S if timeout is None else timeout
    snapshot_first = partial(_snapshot_first, conf, folder, force=force)
    if hands_over:
        view, ending = hand_over(conf, folder, snapshot_first, limit_s)
        _show_end(folder, ending)
        successor = None if ending.state.phase == "finished" else awaited_successor(conf, folder, ending)
        if successor is not None:
            click.echo(f"{successor.holder} continues it as life {successor.incarnation}", err=True)
    else:
        view, successor = snapshot_first() if with_snapshot else None, None
        standbys = _standbys_of(folder)
        ending = end_job(folder, limit_s)
        _show_end(folder, ending)
        if standbys:
            click.echo(f"its standbys end too: {'; '.join(standbys)}", err=True)
    if as_json:
        said = {"job": folder.name, "killed": ending.killed, "took_s": round(ending.took_s, 3)}
        said |= {"cause": msgspec.to_builtins(ending.state.cause), "snapshot": msgspec.to_builtins(view)}
        said |= {"successor": asdict(successor)} if successor is not None else {}
        click.echo(json.dumps(said, indent=2))
    return LifeEnded.exit_code if ending.killed else 0


def _show_end(folder: JobFolder, ending: JobEnd) -> None:
    how = "was killed" if ending.killed else "has stopped"
    click.echo(f'job "{folder.name}" {how} ({ending.took_s:.1f} s): {_first_line(ending.state.cause)}', err=True)


def _standbys_of(folder: JobFolder) -> list[str]:
    """Return the standbys of a job that is to be stopped, as far as it can say."""
    state = folder.state()
    view = None if state is None or state.seen().ended else ask_view(folder, state)
    return [] if view is None else [each.holder for each in view.standbys]


def _snapshot_first(conf: Conf, folder: JobFolder, *, force: bool) -> SnapshotView | None:
    """Take and commit a snapshot before a job is stopped; None if that failed and the job is to stop anyway.

    Raises:
        SnapshotFailed: it failed; the job keeps running.
    """
    try:
        view = take(control_of(conf, folder.name), folder.name, None)
    except NotRunning:
        raise
    except LowtideError as error:
        if force:
            click.echo(f"warning: stopping without a snapshot: {error}", err=True)
            return None
        raise SnapshotFailed(
            f'job "{folder.name}" was not stopped because its snapshot failed: {error.what}',
            where=error.where,
            way_out=f"{error.way_out or 'try again'}; or stop it anyway with --force",
        ) from error
    click.echo(described(view), err=True)
    return view


def _ask(folder: JobFolder, state: JobState) -> tuple[Figures | None, JobView | None]:
    """Ask a running job for its state: over the control API, else over the service's own connection."""
    if state.ended:
        return None, None
    view = ask_view(folder, state)
    return (ask_figures(folder, state), None) if view is None else (Figures.of_view(view), view)


def _row(state: JobState, figures: Figures | None, view: JobView | None) -> tuple[str, ...]:
    counts = (
        ("-", "-", "-")
        if figures is None
        else (f"{figures.records_in:,}", f"{figures.records_out:,}", str(figures.workers))
    )
    lag = "-" if view is None else duration(view.lag_ms)
    process = next((str(one.pid) for one in (state.runner, state.supervisor) if one and one.alive()), "-")
    since = state.ended_at or state.ready_at or state.started_at
    return state.name, state.phase, process, f"{since:%Y-%m-%d %H:%M:%S}", *counts, lag, _remark(state, figures)


def _remark(state: JobState, figures: Figures | None) -> str:
    if state.ended:
        left = len(marked(state.life))
        rest = f"; {left} processes still run: lowtide stop {state.name}" if left else ""
        return _first_line(state.cause) + rest
    if state.phase == "standby":
        return "waits until the program that runs the job is gone"
    if state.phase == "running" and figures is None:
        return "its service does not answer"
    return state.step


def _as_object(folder: JobFolder, state: JobState, figures: Figures | None, view: JobView | None) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(state)
    left = len(marked(state.life)) if state.ended else None
    known = None if figures is None else asdict(figures)
    seen = msgspec.to_builtins(view)
    return {**written, "figures": known, "view": seen, "processes_left": left, "log": str(folder.log_file)}


def _first_line(cause: Cause | None) -> str:
    return str(cause or "").partition("\n")[0]
