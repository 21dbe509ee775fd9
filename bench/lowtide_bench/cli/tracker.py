"""`lowtide bench tracker`: capacity of one tracker process, delay of its notices, and growth of its traffic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from lowtide.cli.options import as_json
from lowtide_bench.cli.options import MARKDOWN, PLOTS, Printed, Rates, gathered
from lowtide_bench.cli.running import draw, ended_by_sigterm, progress, show
from lowtide_bench.tracking.asked import Asked


@dataclass(frozen=True, kw_only=True)
class Options(Asked, Printed):
    """Options of the command."""

    plots: Path | None


@click.command()
@click.option("--seconds", type=click.FloatRange(min=1), default=5.0, show_default=True, help="Of each run.")
@click.option("--entries", type=click.IntRange(min=1), default=20, show_default=True, help="Acks of a flush.")
@click.option(
    "--among", "capacity_workers", type=click.IntRange(min=2), default=100, show_default=True,
    help="Workers where their number is not what changes.",
)  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0.5), default=20.0, show_default=True, help="Flushes/s for latency.")
@click.option("--workers", type=Rates(), default="10,100,1000", show_default=True, help="For traffic by workers.")
@click.option(
    "--traffic-rate", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="Flushes/s for traffic."
)
@click.option("--depths", type=Rates(), default="1,3,10,30", show_default=True, help="For traffic by segments.")
@click.option("--depth", type=click.IntRange(min=1), default=2, show_default=True, help="Segments otherwise.")
@click.option(
    "--records", type=Rates(), default="10,100,1000,10000,100000", show_default=True, help="Of a worker, a second."
)
@click.option("--shards", type=Rates(), default="1,2,4,8", show_default=True, help="For work by shards.")
@click.option(
    "--keyed", type=Rates(), default="2,4,8,16,32,64", show_default=True, help="Workers, for notices with early keys."
)
@PLOTS
@MARKDOWN
@as_json
@gathered(Options)
def tracker(*, options: Options) -> int:
    """Measure one tracker process with simulated workers over sockets, and count its traffic.

    It needs no service. The tracker is the process that a job's service starts; another process simulates all workers,
    which flush in rounds over a connection each. Half of the workers send, half receive, so their number is even. With
    --json the last line is one object.

    \b
    lowtide bench tracker --json
    lowtide bench tracker --workers 10 --depths 1 --seconds 2
    """  # noqa: D301 - click takes the character
    odd = [count for count in (options.capacity_workers, *options.workers) if count % 2]
    if odd:
        raise click.BadParameter(f"{odd[0]} workers: half of them send and half receive, so their number is even")
    from lowtide_bench.tracking import report
    from lowtide_bench.tracking.plots import plots
    from lowtide_bench.tracking.run import run

    with ended_by_sigterm(), progress() as say:
        result = run(options, say)
    draw(plots(result), options.plots)
    show(result, report, options)
    return 0
