"""`lowtide bench`: how long records take through a flow, and what the parts of the core do in a second."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

import click
from rich.console import Console

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide.errors import ConfError

END_LIMIT_S = 60.0
Grouping = Literal["optimistic", "ordered"]

PROGRESS_EVERY_S = 5.0
"""How often progress is written where there is no terminal to write it over."""


@click.group()
def bench() -> None:
    """Measure latency and throughput."""


class Rates(click.ParamType[tuple[int, ...]]):
    """Whole numbers above 0, with commas between them."""

    name = "N[,N...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of int."""
        if isinstance(value, tuple):
            return value
        try:
            rates = tuple(int(rate) for rate in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a whole number, or several with commas", param, ctx)
        if min(rates) < 1:
            self.fail(f"{min(rates)} is less than 1", param, ctx)
        return rates


FLOW = click.option(
    "--flow",
    type=click.Choice(["running-count", "inverted-index", "passthrough"]),
    default="running-count",
    show_default=True,
)
TIMESTAMPS = click.option(
    "--timestamps",
    type=click.Choice(["create", "append"]),
    default="create",
    show_default=True,
    help="Who dates the records: their producer, or Kafka as it appends them.",
)
GROUPING = click.option(
    "--grouping",
    type=click.Choice(["optimistic", "ordered"]),
    help="How stateful steps come to the right order; by default as the conf says.",
)


@bench.command()
@FLOW
@click.option("--rate", "rates", type=Rates(), default="1000", show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long is measured.")
@click.option("--warmup", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds before that.")
@click.option("--epoch", type=click.FloatRange(min=5), default=5.0, show_default=True, help="Seconds of an epoch.")
@GROUPING
@click.option(
    "--tracking",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="off: no acks, no waiting for min time, delivered at least once; to see what tracking costs.",
)
@TIMESTAMPS
@click.option("--markdown", is_flag=True, help="Print a table of all rates as markdown.")
@with_conf
@as_json
def latency(
    *,
    conf: Conf,
    flow: str,
    rates: tuple[int, ...],
    seconds: float,
    warmup: float,
    epoch: float,
    grouping: Grouping | None,
    tracking: Literal["on", "off"],
    timestamps: Literal["create", "append"],
    markdown: bool,
    as_json: bool,
) -> int:
    """Measure how long records take through a flow: Kafka, generator, reader and Spark are started for it.

    Beside it, in the same run, a bare librdkafka loop is measured. With --json the last line is one object; with
    several rates each runs in a process of its own, prints its object, and the last line has them all as `runs`.
    Epochs are short by default, so that a run sees their boundaries. The rate of inverted-index is in documents a
    second, each of which makes some 16 changes.
    """
    conf = _conf(conf, grouping, tracking, epoch)
    if len(rates) > 1:
        return _each(rates, as_json, markdown)
    from lowtide.bench.run import run
    from lowtide.bench.session import Load

    with _ended_by_sigterm(), _progress() as say:
        result = run(flow, Load(rates[0], seconds, warmup), conf, say, timestamps=timestamps)
    _show(result, as_json)
    if markdown:
        _show_markdown([result])
    return 0


@bench.command()
@FLOW
@click.option(
    "--rates",
    type=Rates(),
    default="30000,40000,50000,55000,60000,65000,70000,75000,80000,90000,100000,115000,130000",
    show_default=True,
    help="Records a second of each step.",
)
@click.option("--step", type=click.FloatRange(min=2), default=5.0, show_default=True, help="Seconds of a step.")
@click.option("--warmup", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Seconds before them.")
@GROUPING
@click.option(
    "--tracking",
    type=click.Choice(["on", "off", "both"]),
    default="both",
    show_default=True,
    help="both: one after the other, and what tracking costs.",
)
@TIMESTAMPS
@click.option("--markdown", is_flag=True, help="Print a table as markdown.")
@with_conf
@as_json
def throughput(
    *,
    conf: Conf,
    flow: str,
    rates: tuple[int, ...],
    step: float,
    warmup: float,
    grouping: Grouping | None,
    tracking: Literal["on", "off", "both"],
    timestamps: Literal["create", "append"],
    markdown: bool,
    as_json: bool,
) -> int:
    """Find out how many records a second go through a flow for good, beside the bare loop of the same run.

    The rate rises step by step. A step is kept while the lag does not grow; what the steps above leave behind is then
    worked off, which gives a second, higher figure. With --json the last line is one object.
    """
    if tracking == "both":
        return _tracked_and_not(as_json, markdown)
    conf = _conf(conf, grouping, tracking, conf.epoch.duration_s)
    from lowtide.bench.run import run_ramp
    from lowtide.bench.session import Rise

    with _ended_by_sigterm(), _progress() as say:
        result = run_ramp(flow, Rise(tuple(sorted(rates)), step, warmup), conf, say, timestamps=timestamps)
    _show_ramps([result], as_json=as_json, markdown=markdown)
    return 0


@bench.command()
@click.option("--trials", type=click.IntRange(min=1), default=5, show_default=True, help="Of each part, at most.")
@click.option("--limit", type=click.FloatRange(min=0), default=2.0, show_default=True, help="Seconds for these.")
@click.option("--markdown", is_flag=True, help="Print the tables as markdown.")
@as_json
def core(*, trials: int, limit: float, markdown: bool, as_json: bool) -> int:
    """Measure the core part by part on one thread: tracker, labels, scan, last(2), barrier. It needs no service.

    Each figure is the median of several trials. With --json the last line is one object, with all variants and the
    least and the most of each figure.
    """
    from lowtide.bench import core_report
    from lowtide.bench.core import run
    from lowtide.bench.core_timing import Extent

    with _ended_by_sigterm(), _progress() as say:
        result = run(Extent(trials=trials, limit_s=limit), say)
    if markdown:
        click.echo(core_report.markdown(result))
    if as_json:
        click.echo(json.dumps(result))
    elif not markdown:
        Console().print(core_report.report(result))
    return 0


def _conf(conf: Conf, grouping: Grouping | None, tracking: Literal["on", "off"], epoch: float) -> Conf:
    """Return the conf with what the command line says; ConfError if its figures could not be compared."""
    if conf.job.parallelism > 2:
        raise ConfError(
            f"[job] parallelism is {conf.job.parallelism}: the sink of a measurement has 2 partitions",
            way_out="set job.parallelism to 1 or 2",
        )
    job = dataclasses.replace(conf.job, grouping=grouping or conf.job.grouping, tracking=tracking)
    if tracking == "off":
        job = dataclasses.replace(job, delivery="at_least_once")
    return dataclasses.replace(conf, job=job, epoch=dataclasses.replace(conf.epoch, duration_s=epoch))


def _tracked_and_not(as_json: bool, markdown: bool) -> int:
    """Run a ramp with tracking and one without, each as a command of its own."""
    results = []
    for tracking in ("on", "off"):
        click.echo(f"tracking {tracking}", err=True)
        code, result = _one("--tracking", tracking)
        if code:
            return code
        results.append(result)
    _show_ramps(results, as_json=as_json, markdown=markdown)
    return 0


def _show_ramps(results: list[dict[str, Any]], *, as_json: bool, markdown: bool) -> None:
    from lowtide.bench.markdown import ramps

    if markdown or not as_json:
        click.echo(ramps(results))
    if as_json:
        click.echo(json.dumps(results[0] if len(results) == 1 else {"runs": results}))


def _show_markdown(results: list[dict[str, Any]]) -> None:
    from lowtide.bench.markdown import markdown

    click.echo(markdown(results))


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result))
        return
    from lowtide.bench.report import report

    Console().print(report(result))


def _each(rates: tuple[int, ...], as_json: bool, markdown: bool) -> int:
    """Run each rate as a command of its own, so that each has a fresh JVM."""
    results = []
    for rate in rates:
        click.echo(f"rate {rate}", err=True)
        code, result = _one("--rate", str(rate))
        if code:
            click.echo(f"error: the run at {rate} records/s ended with {code}; what it said is above", err=True)
            return code
        results.append(result)
        _show(result, as_json)
    if markdown:
        _show_markdown(results)
    if as_json:
        click.echo(json.dumps({"runs": results}))
    return 0


def _one(option: str, value: str) -> tuple[int, dict[str, Any]]:
    # The last of an option given twice wins, so the arguments of this command can be handed on as they are.
    given = [word for word in sys.argv[1:] if word != "--markdown"]
    command = [sys.executable, "-m", "lowtide.cli", *given, option, value, "--json"]
    with _ended_by_sigterm():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            said, _ = process.communicate()
        except BaseException:
            # At a terminal Ctrl-C has gone to both; a second one would break off how the child ends what it started.
            process.terminate()
            process.wait(END_LIMIT_S)
            raise
    return process.returncode, {} if process.returncode else json.loads(said.splitlines()[-1])


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that all it started is stopped; a second one is not heard."""

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
def _progress() -> Iterator[Any]:
    """Give a function that shows what happens now, on standard error."""
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
