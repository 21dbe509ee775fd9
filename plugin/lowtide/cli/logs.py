"""`lowtide logs` and `lowtide forget`: what a job of this machine has said, and the end of that."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from lowtide.cli.options import with_conf
from lowtide.cli.running_jobs import latest_job
from lowtide.conf import Conf
from lowtide.jobs.folder import JobFolder

POLL_S = 0.2
TAIL = 100


@click.command()
@click.argument("name", required=False)
@click.option("-n", "--tail", type=click.IntRange(min=0), default=TAIL, help=f"Number of lines; by default {TAIL}.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the job ends.")
@click.option("--previous", is_flag=True, help="Show the log before this one: of the last start, or of a full file.")
@with_conf
def logs(*, conf: Conf, name: str | None, tail: int, follow: bool, previous: bool) -> None:
    """Show the log of the job NAME: what it, Spark and its workers said, and what the flow's functions printed.

    Without NAME, it is the only job that runs, or else the one that ended last.
    """
    if follow and previous:
        raise click.UsageError("nothing is added to a --previous log: leave out --follow")
    root = Path(conf.job.folder)
    folder = JobFolder.find(root, name) if name is not None else latest_job(root)
    file = folder.log_file.with_name(f"{folder.log_file.name}.1") if previous else folder.log_file
    if not file.exists():
        click.echo(f'job "{folder.name}" has no {"previous " * previous}log: there is no {file}', err=True)
        return
    with file.open("rb") as opened:
        for line in deque(opened, maxlen=tail):
            click.echo(line, nl=False)
        if not follow:
            return
        for some in _following(opened, folder):
            click.echo(some, nl=False)
    state = folder.state()
    if state is not None:
        click.echo(f'job "{folder.name}" has {state.seen().phase}', err=True)


@click.command()
@click.argument("names", nargs=-1, required=True)
@with_conf
def forget(*, conf: Conf, names: tuple[str, ...]) -> None:
    """Forget ended jobs here: their logs, and how they ended.

    What a next start needs stays: commits in ZooKeeper, snapshots, the job's topics.
    """
    root = Path(conf.job.folder)
    for folder in [JobFolder.find(root, name) for name in names]:
        folder.forget()
        click.echo(f'job "{folder.name}" is forgotten here; its commits stay: lowtide snapshots list {folder.name}')


def _following(opened: BinaryIO, folder: JobFolder) -> Iterator[bytes]:
    """Yield what is added to a log, until its job has ended and all is read."""
    while True:
        state = folder.state()
        over = state is None or state.seen().ended
        if os.fstat(opened.fileno()).st_size < opened.tell():
            # It had grown too large and was emptied; what it had is in the next older file.
            opened.seek(0)
        if some := opened.read():
            yield some
        elif over:
            return
        elif os.path.samestat(os.fstat(opened.fileno()), folder.log_file.stat()):
            time.sleep(POLL_S)
        else:
            # The job has started again, and has begun another file.
            with folder.log_file.open("rb") as newer:
                yield from _following(newer, folder)
            return
