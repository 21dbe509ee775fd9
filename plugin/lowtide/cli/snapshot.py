"""`lowtide snapshot`: has a running job take a snapshot."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.running_jobs import control_of, only_job
from lowtide.cli.taking import described, take
from lowtide.conf import Conf

MOST_CHARACTERS = 200


def _checked_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not 1 <= len(value) <= MOST_CHARACTERS:
        raise click.BadParameter(f"a name has 1 to {MOST_CHARACTERS} characters")
    return value


@click.command()
@click.argument("job", required=False)
@click.option("--name", callback=_checked_name, help="Call it so; a commit with a name is kept for good.")
@click.option("--no-commit", is_flag=True, help="Only seal it; `lowtide snapshots commit` commits it later.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Wait no longer.")
@with_conf
@as_json
def snapshot(
    *, conf: Conf, job: str | None, name: str | None, no_commit: bool, timeout: float | None, as_json: bool
) -> None:
    """Have JOB, or the only one that runs, take a snapshot; it is committed unless --no-commit is given.

    The job goes on meanwhile. With 6 if the snapshot failed or is not over in time; the job goes on then, too.
    """
    job = only_job(Path(conf.job.folder)).name if job is None else job
    view = take(control_of(conf, job), job, name, commit=not no_commit, limit_s=timeout)
    click.echo(msgspec.json.encode(view) if as_json else described(view))
