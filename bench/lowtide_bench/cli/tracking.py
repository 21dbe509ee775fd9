"""`lowtide bench tracking`: cost and delay of progress by the tracker, by markers and by nothing, on one flow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from lowtide.cli.options import as_json
from lowtide_bench.cli.options import MARKDOWN, PLOTS, Printed, Rates, gathered
from lowtide_bench.cli.running import draw, ended_by_sigterm, progress, show
from lowtide_bench.mechanisms.asked import Asked, Setting

SHORTEST_MS = 5
"""The time between two turns of the sources, `lowtide_bench.mechanisms.nodes.TURN_S`."""


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Options of the command."""

    seconds: float
    nodes: tuple[int, ...]
    depths: tuple[int, ...]
    periods: tuple[int, ...]
    rates: tuple[int, ...]
    flushes: tuple[int, ...]
    among: int
    depth: int
    period: int
    rate: int
    flush: int
    plots: Path | None

    def asked(self) -> Asked:
        """Return what is to be measured."""
        usual = Setting(nodes=self.among, depth=self.depth, period=self.period, rate=self.rate, flush=self.flush)
        return Asked(
            seconds=self.seconds,
            nodes=self.nodes,
            depths=self.depths,
            periods=self.periods,
            rates=self.rates,
            flushes=self.flushes,
            usual=usual,
        )


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0.5), default=3.0, show_default=True, help="Of each run.")
@click.option("--nodes", type=Rates(), default="1,2,4,8,16,32", show_default=True, help="For cost by nodes.")
@click.option("--depths", type=Rates(), default="1,2,4,8", show_default=True, help="For cost by shuffles.")
@click.option(
    "--periods", type=Rates(), default="10,30,100,300,1000", show_default=True,
    help="Ms between notices, for cost by period.",
)  # fmt: skip
@click.option("--rates", type=Rates(), default="500,2000,8000", show_default=True, help="Records/s of all nodes.")
@click.option(
    "--flushes", type=Rates(), default="2,10,30,100", show_default=True,
    help="Ms between flushes of a node to the tracker.",
)  # fmt: skip
@click.option("--among", type=click.IntRange(min=1), default=8, show_default=True, help="Nodes otherwise.")
@click.option("--depth", type=click.IntRange(min=1), default=2, show_default=True, help="Shuffles otherwise.")
@click.option("--period", type=click.IntRange(min=1), default=100, show_default=True, help="Period otherwise, in ms.")
@click.option("--rate", type=click.IntRange(min=100), default=2_000, show_default=True, help="Records/s otherwise.")
@click.option(
    "--flush",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Ms between flushes otherwise; a job has 2.",
)
@PLOTS
@MARKDOWN
@as_json
@gathered(Options)
def tracking(*, options: Options) -> int:
    """Measure how nodes learn that they have everything of a period: by the tracker, or by markers on every channel.

    It needs no service. One process has all nodes of a flow with some shuffles, over TCP between each two; the tracker
    is the process that a job's service starts. Every notice is held against the truth, and one that comes early ends
    the command. With --json the last line is one object.

    \b
    lowtide bench tracking --json
    lowtide bench tracking --nodes 2,8 --depths 2 --periods 100 --rates 2000 --flushes 2
    """  # noqa: D301 - click takes the character
    short = min(options.period, *options.periods)
    if short < SHORTEST_MS:
        raise click.BadParameter(f"a period of {short} ms: sources have a turn every {SHORTEST_MS} ms, so give no less")
    from lowtide_bench.mechanisms import report
    from lowtide_bench.mechanisms.plots import plots
    from lowtide_bench.mechanisms.run import run

    with ended_by_sigterm(), progress() as say:
        result = run(options.asked(), say)
    draw(plots(result), options.plots)
    show(result, report, options)
    return 0
