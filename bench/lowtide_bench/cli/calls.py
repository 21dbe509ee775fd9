"""`lowtide bench calls`: what a call adds to the time of the service that it asks."""

from __future__ import annotations

from dataclasses import dataclass

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.asked import AskedOfCalls
from lowtide_bench.cli.options import EPOCH, MARKDOWN, TRIES, OfJob, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(AskedOfCalls, OfJob):
    """Options of the command."""


@click.command()
@click.option("--rate", type=click.IntRange(min=1), default=1_000, show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=15.0, show_default=True, help="Of each turn.")
@click.option("--warmup", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds before that.")
@click.option("--rounds", type=click.IntRange(min=1), default=2, show_default=True, help="Turns of each flow.")
@click.option(
    "--service-ms",
    "service",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Time that the service takes for an answer.",
)
@click.option(
    "--backlog", type=click.IntRange(min=0), default=60_000, show_default=True, help="Records to catch up; 0: none."
)
@click.option(
    "--kills", type=click.IntRange(min=0), default=0, show_default=True, help="Of driver, host and caller in turn."
)
@click.option("--every", type=click.FloatRange(min=1), default=15.0, show_default=True, help="Seconds between kills.")
@click.option(
    "--outage", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds without the service."
)
@TRIES
@EPOCH
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def calls(*, options: Options) -> int:
    """Measure what a call adds to the time of its service, and how many are made in catching up.

    A flow without a call and the same flow with one take turns. The service is a process beside them that only waits.
    With --kills a third part follows, at a quarter of the rate: the service goes away for a while, and processes are
    killed. With --json the last line is one object.

    \b
    lowtide bench calls --rate 1000 --service-ms 20
    lowtide bench calls --rounds 1 --backlog 0 --kills 20
    """  # noqa: D301 - click takes the character
    conf = options.measured()
    from lowtide_bench import calling_report
    from lowtide_bench.calling import run

    with ended_by_sigterm(), progress() as say:
        result = run(options, conf, say)
    show(result, calling_report, options)
    return 0
