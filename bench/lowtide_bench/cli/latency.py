"""`lowtide bench latency`: latency of records through a flow."""

from __future__ import annotations

import json
from typing import Any, Literal

import click
from rich.console import Console

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import (
    FLOW,
    GROUPING,
    STATE_KEYS,
    SUBJECTS,
    TIMESTAMPS,
    WARM,
    Grouping,
    Rates,
    measured_conf,
)
from lowtide_bench.cli.running import ended_by_sigterm, one, progress


@click.command()
@FLOW
@click.option("--rate", "rates", type=Rates(), default="1000", show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long is measured.")
@click.option("--warmup", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds before that.")
@WARM
@SUBJECTS
@click.option("--epoch", type=click.FloatRange(min=5), default=5.0, show_default=True, help="Seconds of an epoch.")
@GROUPING
@TIMESTAMPS
@click.option(
    "--snapshot-every",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Snapshots are taken and committed at this pace while it is measured; 0: none.",
)
@STATE_KEYS
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
    warm_s: float,
    subjects: tuple[str, ...],
    epoch: float,
    grouping: Grouping | None,
    timestamps: Literal["create", "append"],
    snapshot_every: float,
    state_keys: int,
    markdown: bool,
    as_json: bool,
) -> int:
    """Measure how long records take through a flow: Kafka, generator, reader and Spark are started for it.

    Beside it, in the same run, a bare librdkafka loop and a skeleton of the flow are measured, so that the figures say
    what its promises cost. The broker is warmed first. With --json the last line is one object; with
    several rates each runs in a process of its own, prints its object, and the last line has them all as `runs`.
    Epochs are short by default, so that a run sees their boundaries. The rate of inverted-index is in documents a
    second, each of which makes some 16 changes. To compare paces of snapshots: `lowtide bench snapshots`.
    """
    if state_keys and flow != "running-count":
        raise click.UsageError(f"--state-keys fills the state of running-count, and --flow is {flow}")
    conf = measured_conf(conf, grouping, epoch)
    if len(rates) > 1:
        return _each(rates, as_json, markdown)
    from lowtide_bench.load import Load
    from lowtide_bench.run import run

    with ended_by_sigterm(), progress() as say:
        result = run(
            flow,
            Load(rates[0], seconds, warmup),
            conf,
            say,
            subjects=subjects,
            warm_s=warm_s,
            timestamps=timestamps,
            snapshot_every_s=snapshot_every,
            state_keys=state_keys,
        )
    _show(result, as_json)
    if markdown:
        _show_markdown([result])
    return 0


def _show_markdown(results: list[dict[str, Any]]) -> None:
    from lowtide_bench.markdown import markdown

    click.echo(markdown(results))


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result))
        return
    from lowtide_bench.report import report

    Console().print(report(result))


def _each(rates: tuple[int, ...], as_json: bool, markdown: bool) -> int:
    """Run each rate as a command of its own, so that each has a fresh JVM."""
    results = []
    for rate in rates:
        click.echo(f"rate {rate}", err=True)
        code, result = one("--rate", str(rate))
        if code:
            click.echo(f"error: the run at {rate} records/s ended with {code}; see its output above", err=True)
            return code
        results.append(result)
        _show(result, as_json)
    if markdown:
        _show_markdown(results)
    if as_json:
        click.echo(json.dumps({"runs": results}))
    return 0
