"""`lowtide wait`: waits until a job reaches a time."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import time_of
from lowtide.cli.running_jobs import control_of, only_job
from lowtide.conf import Conf
from lowtide.errors import NotRunning
from lowtide.status.subscriber import follow
from lowtide_snapshots.commits.moment import ms_of
from lowtide_snapshots.job.news import BEGUN, COMMIT, DELIVERED, DONE, END, LIFE, SEGMENT, News, step_of_labels

STOPPED_WAY_OUT = "start it again, then wait again: it delivers nothing twice"


def _moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdecimal():
        return int(value)
    try:
        return ms_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is neither ISO, such as 2026-01-02T13:00, nor ms since 1970") from error


@click.command()
@click.argument("job", required=False)
@click.option("--delivered", callback=_moment, metavar="TIME", help="Until all before TIME is durable in the sinks.")
@click.option("--commit", callback=_moment, metavar="TIME", help="Until a snapshot of TIME or later is committed.")
@click.option("--left", nargs=2, metavar="STEP TIME", help="Until all before TIME has left the segment of STEP.")
@click.option("--done", nargs=2, metavar="STEP LABEL", help="Until the substream LABEL of when_done STEP has ended.")
@click.option("--begun", nargs=2, metavar="STEP LABEL", help="Until the substream LABEL of when_begun STEP has begun.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Wait no longer.")
@with_conf
@as_json
def wait(
    *,
    conf: Conf,
    job: str | None,
    delivered: int | None,
    commit: int | None,
    left: tuple[str, str] | None,
    done: tuple[str, str] | None,
    begun: tuple[str, str] | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Wait until JOB, or the only one that runs, reaches a time, or a label begins or ends; give one of the options.

    Times are ISO, in UTC unless they name a zone, or ms since 1970. If the job dies, the command waits for its next
    life. Exits with 6 on a timeout.
    """
    asked = [
        *([(DELIVERED, delivered)] if delivered is not None else []),
        *([(COMMIT, commit)] if commit is not None else []),
        *([(f"{SEGMENT}:{left[0]}", _left_moment(left[1]))] if left is not None else []),
        *([(f"{DONE}:{done[0]}:{done[1]}", 0)] if done is not None else []),
        *([(f"{DONE}:{step_of_labels(begun[0], begun=True)}:{begun[1]}", 0)] if begun is not None else []),
    ]
    if len(asked) != 1:
        raise click.UsageError("give one of --delivered, --commit, --left, --done and --begun")
    name = only_job(Path(conf.job.folder)).name if job is None else job
    (subject, at_ms) = asked[0]
    for news in follow(lambda: control_of(conf, name), [subject], at_ms=at_ms, limit_s=timeout):
        if news.kind == END and news.data.get("cause") is None:
            raise NotRunning(f'job "{name}" was stopped before it got there', way_out=STOPPED_WAY_OUT)
        if news.kind == END:
            click.echo(_said(name, news), err=True)
        elif news.kind != LIFE:
            click.echo(msgspec.json.encode({"job": name} | news.data) if as_json else _said(name, news))


def _left_moment(text: str) -> int:
    found = _moment(click.get_current_context(), click.Option(["--left"]), text)
    assert found is not None, "it was given"
    return found


def _said(job: str, news: News) -> str:
    if news.kind == END:
        return f'life {news.incarnation} of job "{job}" has ended; waiting for the next one: {news.data["cause"]}'
    until = "the end of time" if news.time_ms is None else f"{time_of(news.time_ms)} UTC"
    if news.kind == DELIVERED:
        return f"all before {until} is delivered"
    if news.kind == DONE:
        _, step, label = str(news.data["about"]).split(":", 2)
        what = f"{step.removesuffix(BEGUN)}, has {'begun' if step.endswith(BEGUN) else 'ended'}"
        return f"{label}, of {what}, and all before {until} is delivered"
    if news.kind == COMMIT:
        return f"snapshot {news.data['snapshot']}, all before {until}, is committed"
    return f"all before {until} has left {news.data['about']}"
