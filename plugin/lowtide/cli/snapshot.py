"""`lowtide snapshot`: take a snapshot of a running job."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import bar, size, time_of
from lowtide.cli.running_jobs import control_of, only_job
from lowtide.conf import Conf
from lowtide.errors import SnapshotFailed
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import SnapshotView
from lowtide.wording import count_of
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import ControlUnreachable

MOST_CHARACTERS = 200


def _checked_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not 1 <= len(value) <= MOST_CHARACTERS:
        raise click.BadParameter(f"a name has 1 to {MOST_CHARACTERS} characters")
    return value


@click.command()
@click.argument("job", required=False)
@click.option("--name", callback=_checked_name, help="The snapshot's name; a named commit is kept for good.")
@click.option("--no-commit", is_flag=True, help="Only seal it; `lowtide snapshots commit` commits it later.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Wait no longer.")
@with_conf
@as_json
def snapshot(
    *, conf: Conf, job: str | None, name: str | None, no_commit: bool, timeout: float | None, as_json: bool
) -> None:
    """Take a snapshot of JOB, or of the only one that runs, and commit it unless --no-commit is given.

    The job keeps running. Exits with 6 if the snapshot fails or times out; the job keeps running then too.
    """
    job = only_job(Path(conf.job.folder)).name if job is None else job
    view = take(control_of(conf, job), job, name, commit=not no_commit, limit_s=timeout)
    click.echo(msgspec.json.encode(view) if as_json else described(view))


POLL_S = 0.1
SILENCE_LIMIT_S = 15.0
"""Limit on the control API's silence while a snapshot is taken; each question waits 5 s at most."""


def take(
    client: ControlClient, job: str, name: str | None, *, commit: bool = True, limit_s: float | None = None
) -> SnapshotView:
    """Ask for a snapshot, and return it when it is committed, or sealed where it is not to be.

    Args:
        client: The job's control API.
        job: The job's name, for people.
        name: What to call the snapshot.
        commit: Whether it is committed.
        limit_s: How long to wait; None for as long as the job takes.

    Raises:
        SnapshotFailed: it was not taken or not committed, or is not over within the limit.
        ControlUnreachable, TokenRefused: the job did not get the request.
    """
    began = time.monotonic()
    asked = client.take_snapshot(name, commit=commit)
    heard = began
    with bar(f"snapshot {asked.id}") as progress:
        while True:
            view, silence = _look(client, asked.id)
            if view is not None:
                heard = time.monotonic()
                progress(view.parts_done, view.parts)
                if view.phase == "failed":
                    raise _failed(asked.id, job, view.why)
                if view.phase == ("committed" if commit else "sealed"):
                    return view
            elif time.monotonic() - heard > SILENCE_LIMIT_S or not silence:
                raise _lost(asked.id, job, silence)
            if limit_s is not None and time.monotonic() - began > limit_s:
                raise _late(asked.id if view is None else view.id, job, limit_s, view)
            time.sleep(POLL_S)


def described(view: SnapshotView) -> str:
    """Return a line about a snapshot's outcome."""
    called = f' "{view.name}"' if view.name else ""
    what = f"{count_of(view.parts_done, 'part')} written, {count_of(view.rows, 'row')}, {size(view.bytes)} in all"
    until = f"all before {time_of(view.min_time_ms)} UTC"
    return f"snapshot {view.id}{called} {view.phase}: {until}, {what}, took {view.took_s:.1f} s"


def _look(client: ControlClient, id_: str) -> tuple[SnapshotView | None, str]:
    """Return the snapshot; or None, and why the job did not answer: empty if it answered without the snapshot."""
    try:
        return next((view for view in client.snapshots() if view.id == id_), None), ""
    except ControlUnreachable as error:
        return None, error.what


def _failed(id_: str, job: str, why: Cause | None) -> SnapshotFailed:
    assert why is not None, "what has failed has a cause"
    said = f'snapshot {id_} of job "{job}" failed: {why.what}'
    return SnapshotFailed(said, where=why.where, way_out=why.way_out, details=why.details)


def _lost(id_: str, job: str, silence: str) -> SnapshotFailed:
    return SnapshotFailed(
        f'the outcome of snapshot {id_} of job "{job}" is unknown: ' + (silence or "the job no longer knows it"),
        way_out=f"`lowtide snapshots list {job}` shows whether it is committed, `lowtide status {job}` the job",
    )


def _late(id_: str, job: str, limit_s: float, view: SnapshotView | None) -> SnapshotFailed:
    waits = "; ".join(view.waits_for) if view is not None else ""
    return SnapshotFailed(
        f'snapshot {id_} of job "{job}" is not complete after {limit_s:g} s' + (f": {waits}" if waits else ""),
        way_out=f"it continues for [snapshots].taking_limit_s at most: lowtide snapshots list {job}",
    )
