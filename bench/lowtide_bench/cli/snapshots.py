"""`lowtide bench snapshots`: cost of snapshots to a flow, in time."""

from __future__ import annotations

from dataclasses import dataclass

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, STATE_KEYS, TRIES, OfJob, Paces, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(OfJob):
    """Options of the command."""

    state_keys: int
    every: tuple[float, ...]
    rate: int
    seconds: float
    settle: float
    rounds: int
    warmup: float
    tries: int


@click.command()
@STATE_KEYS
@click.option("--every", type=Paces(), default="0,10,1", show_default=True, help="Seconds between snapshots; 0: none.")
@click.option("--rate", type=click.IntRange(min=1), default=1000, show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Of each variant.")
@click.option("--settle", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds between two.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Turns of each.")
@click.option("--warmup", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Seconds before them.")
@TRIES
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def snapshots(*, options: Options) -> int:
    """Measure the running count with snapshots at several paces, one after the other in one job, under one load.

    The tables compare each pace with no snapshots (a pace of 0): latency, the longest gap in output, and the snapshots
    themselves. With --json the last line is one object.

    \b
    lowtide bench snapshots --rate 50000 --state-keys 1000000 --every 0,10,1
    """  # noqa: D301 - click takes the character
    conf = options.measured()
    from lowtide_bench import variants_report
    from lowtide_bench.phases import Course
    from lowtide_bench.variants import run

    course = Course(options.every, options.rounds, options.seconds, options.settle, options.tries)
    with ended_by_sigterm(), progress() as say:
        result = run(course, options.rate, options.warmup, conf, say, state_keys=options.state_keys)
    show(result, variants_report, options)
    return 0
