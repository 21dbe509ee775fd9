"""`lowtide bench look-ups`: time that a question for the states of keys takes."""

from __future__ import annotations

from dataclasses import dataclass

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import EPOCH, MARKDOWN, OfJob, Rates, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(OfJob):
    """Options of the command."""

    rate: int
    seconds: float
    keys: tuple[int, ...]
    every: float


@click.command()
@click.option("--rate", type=click.IntRange(min=1), default=1000, show_default=True, help="Records a second.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Of each backend, after as many/2."
)
@click.option("--keys", type=Rates(), default="1,100", show_default=True, help="Of one question, in turns.")
@click.option("--every", type=click.FloatRange(min=0.01), default=0.1, show_default=True, help="Seconds between two.")
@EPOCH
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def look_ups(*, options: Options) -> int:
    """Measure how long a question for the states of keys takes, asked of a running count under load.

    Each question opens its own connection, as `lt.state` and `lowtide state` do. The state lies in memory, then on disk
    with no group at rest in memory. With --json the last line is one object.

    \b
    lowtide bench look-ups --rate 1000 --keys 1,100
    """  # noqa: D301 - click takes the character
    conf = options.measured()
    from lowtide_bench import look_ups as measured

    with ended_by_sigterm(), progress() as say:
        result = measured.run(options.rate, options.seconds, options.keys, options.every, conf, say)
    show(result, measured, options)
    return 0
