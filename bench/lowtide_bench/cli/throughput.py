"""`lowtide bench throughput`: the highest rate that a flow keeps up for ever."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.asked import Asked
from lowtide_bench.cli.options import (
    FLOW,
    GROUPING,
    MARKDOWN,
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
    step: float
    warmup: float
    tries: int


@click.command()
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
@SUBJECTS
@TRIES
@GROUPING
@TIMESTAMPS
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def throughput(*, options: Options) -> int:
    """Find the highest rate that a flow keeps up with, beside the bare loop and the skeleton.

    The rate rises step by step. A step is kept while the lag does not grow. The backlog of the steps above is then
    worked off, which gives a second, higher figure. With --json the last line is one object.
    """
    conf = options.measured()
    from lowtide_bench.load import Rise
    from lowtide_bench.markdown import ramp
    from lowtide_bench.run import run_ramp

    with ended_by_sigterm(), progress() as say:
        rise = Rise(tuple(sorted(options.rates)), options.step, options.warmup, options.tries)
        result = run_ramp(options, rise, conf, say)
    if options.markdown or not options.as_json:
        click.echo(ramp(result))
    if options.as_json:
        click.echo(json.dumps(result))
    return 0
