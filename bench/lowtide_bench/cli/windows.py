"""`lowtide bench windows`: throughput of windows, and the delay of results once one closes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import EPOCH, MARKDOWN, OfJob, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(OfJob):
    """Options of the command."""

    records: int
    keys: int
    size: float
    rate: int
    windows: int


@click.command()
@click.option(
    "--records", type=click.IntRange(min=0), default=1_200_000, show_default=True, help="In the log; 0: none."
)
@click.option("--keys", type=click.IntRange(1, 10**8 - 1), default=100_000, show_default=True, help="Different ones.")
@click.option("--size", type=click.FloatRange(min=10), default=60.0, show_default=True, help="A window's seconds.")
@click.option("--rate", type=click.IntRange(min=1), default=20_000, show_default=True, help="Records a second.")
@click.option("--windows", type=click.IntRange(min=0), default=2, show_default=True, help="How many; 0: none.")
@EPOCH
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def windows(*, options: Options) -> int:
    r"""Measure a count in windows of log time: on a log beside `scan`, then live, when all keys' windows close at once.

    A second branch passes a few records on meanwhile; its latency while windows close is held against that while none
    does. With --json the last line is one object.

    \b
    lowtide bench windows --keys 100000 --rate 20000
    lowtide bench windows --records 0 --keys 1000 --rate 1000
    """
    conf = options.measured()
    from lowtide_bench import windowing_report
    from lowtide_bench.windowing import Asked, run

    size = timedelta(seconds=options.size)
    with ended_by_sigterm(), progress() as say:
        result = run(Asked(options.records, options.keys, size, options.rate, options.windows), conf, say)
    show(result, windowing_report, options)
    return 0
