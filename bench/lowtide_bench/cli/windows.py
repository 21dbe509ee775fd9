"""`lowtide bench windows`: throughput of windows, and the delay of results once one closes."""

from __future__ import annotations

from datetime import timedelta

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import EPOCH, MARKDOWN, measured_conf
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option(
    "--records", type=click.IntRange(min=0), default=1_200_000, show_default=True, help="In the log; 0: none."
)
@click.option("--keys", type=click.IntRange(1, 10**8 - 1), default=100_000, show_default=True, help="Different ones.")
@click.option("--size", type=click.FloatRange(min=10), default=60.0, show_default=True, help="A window's seconds.")
@click.option("--rate", type=click.IntRange(min=1), default=20_000, show_default=True, help="Records a second.")
@click.option("--windows", "count", type=click.IntRange(min=0), default=2, show_default=True, help="How many; 0: none.")
@EPOCH
@MARKDOWN
@with_conf
@as_json
def windows(
    *, conf: Conf, records: int, keys: int, size: float, rate: int, count: int, epoch: float, markdown: bool,
    as_json: bool,
) -> int:  # fmt: skip
    r"""Measure a count in windows of log time: on a log beside `scan`, then live, when all keys' windows close at once.

    A second branch passes a few records on meanwhile; its latency while windows close is held against that while none
    does. With --json the last line is one object.

    \b
    lowtide bench windows --keys 100000 --rate 20000
    lowtide bench windows --records 0 --keys 1000 --rate 1000
    """
    conf = measured_conf(conf, None, epoch)
    from lowtide_bench import windowing_report
    from lowtide_bench.windowing import Asked, run

    with ended_by_sigterm(), progress() as say:
        result = run(Asked(records, keys, timedelta(seconds=size), rate, count), conf, say)
    show(result, windowing_report.tables(result), windowing_report.told(result), as_json=as_json, markdown=markdown)
    return 0
