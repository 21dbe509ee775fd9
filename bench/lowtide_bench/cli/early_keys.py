"""`lowtide bench early-keys`: what one slow key does to the lanes of other workers, and what early keys cost."""

from __future__ import annotations

from dataclasses import dataclass

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.asked import AskedOfEarlyKeys
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, TRIES, OfJob, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(AskedOfEarlyKeys, OfJob):
    """Options of the command."""


@click.command("early-keys")
@click.option("--rate", type=click.IntRange(min=1), default=200, show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=10.0, show_default=True, help="Of each turn.")
@click.option("--warmup", type=click.FloatRange(min=0), default=8.0, show_default=True, help="Seconds before that.")
@click.option("--rounds", type=click.IntRange(min=1), default=2, show_default=True, help="Turns of each setting.")
@click.option(
    "--sleep-ms",
    "sleep",
    type=click.FloatRange(min=0),
    default=200.0,
    show_default=True,
    help="Time that the slow key's function sleeps; 0: no turns with a sleep.",
)
@click.option("--workers", type=click.IntRange(2, 16), default=2, show_default=True, help="Of the level that counts.")
@TRIES
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def early_keys(*, options: Options) -> int:
    """Measure what a key whose function sleeps does to the lanes of other workers, with early keys and without.

    A running count with dead letters takes turns, each worker in a process of its own: early keys off and on, first
    while no key sleeps, then while one does. One record of 99 has the slow key. Given are the delay of other workers'
    lanes and of the slow key's, acks, notices and CPU. With --json the last line is one object.

    \b
    lowtide bench early-keys
    lowtide bench early-keys --rate 2000 --workers 8 --sleep-ms 0
    """  # noqa: D301 - click takes the character
    conf = options.measured()
    from lowtide_bench import early_keys_report
    from lowtide_bench.early_keys import run

    with ended_by_sigterm(), progress() as say:
        result = run(options, conf, say)
    show(result, early_keys_report, options)
    return 0
