"""`lowtide bench throughput`: the highest rate that a flow keeps up for ever."""

from __future__ import annotations

import json
from typing import Literal

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import FLOW, GROUPING, SUBJECTS, TIMESTAMPS, WARM, Grouping, Rates, measured_conf
from lowtide_bench.cli.running import ended_by_sigterm, progress


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
@WARM
@SUBJECTS
@GROUPING
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
    warm_s: float,
    subjects: tuple[str, ...],
    grouping: Grouping | None,
    timestamps: Literal["create", "append"],
    markdown: bool,
    as_json: bool,
) -> int:
    """Find out how many records a second go through a flow for good, beside the bare loop and the skeleton.

    The rate rises step by step. A step is kept while the lag does not grow; what the steps above leave behind is then
    worked off, which gives a second, higher figure. With --json the last line is one object.
    """
    conf = measured_conf(conf, grouping, conf.epoch.duration_s)
    from lowtide_bench.load import Rise
    from lowtide_bench.run import run_ramp

    with ended_by_sigterm(), progress() as say:
        rise = Rise(tuple(sorted(rates)), step, warmup)
        result = run_ramp(flow, rise, conf, say, subjects=subjects, warm_s=warm_s, timestamps=timestamps)
    if markdown or not as_json:
        from lowtide_bench.markdown import ramp

        click.echo(ramp(result))
    if as_json:
        click.echo(json.dumps(result))
    return 0
