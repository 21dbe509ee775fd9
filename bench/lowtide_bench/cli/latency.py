"""`lowtide bench latency`: latency of records through a flow."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click
from rich.console import Console

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.asked import Asked
from lowtide_bench.cli.options import (
    FLOW,
    GROUPING,
    MARKDOWN,
    STATE_KEYS,
    SUBJECTS,
    TIMESTAMPS,
    TRIES,
    OfJob,
    Rates,
    gathered,
)  # fmt: skip
from lowtide_bench.cli.running import ended_by_sigterm, progress


@dataclass(frozen=True, kw_only=True)
class Options(Asked, OfJob):
    """Options of the command."""

    rates: tuple[int, ...]
    seconds: float
    warmup: float
    tries: int


@click.command()
@FLOW
@click.option("--rate", "rates", type=Rates(), default="1000", show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long is measured.")
@click.option("--warmup", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds before that.")
@SUBJECTS
@TRIES
@click.option("--epoch", type=click.FloatRange(min=5), default=5.0, show_default=True, help="Seconds of an epoch.")
@GROUPING
@TIMESTAMPS
@click.option(
    "--snapshot-every",
    "snapshot_every_s",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Take and commit snapshots at this pace while measuring; 0: none.",
)
@STATE_KEYS
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def latency(*, options: Options) -> int:
    """Measure how long records take through a flow.

    A bare librdkafka loop and a skeleton of the flow are measured in the same run, so that the figures show the cost of
    the flow's promises. Several rates are measured one after the other. With --json the last line is one object; of
    several rates it has them all as `runs`. A record of inverted-index is a document, which makes some 16 changes.
    """
    if options.state_keys and options.flow != "running-count":
        raise click.UsageError(f"--state-keys fills the state of running-count, and --flow is {options.flow}")
    conf = options.measured()
    from lowtide_bench.load import Load
    from lowtide_bench.markdown import markdown
    from lowtide_bench.report import report
    from lowtide_bench.run import run

    results = []
    with ended_by_sigterm(), progress() as say:
        for rate in options.rates:
            results.append(run(options, Load(rate, options.seconds, options.warmup, options.tries), conf, say))
            if options.as_json:
                click.echo(json.dumps(results[-1]))
            else:
                Console().print(report(results[-1]))
    if options.markdown:
        click.echo(markdown(results))
    if options.as_json and len(results) > 1:
        click.echo(json.dumps({"runs": results}))
    return 0
