"""`lowtide bench snapshots`: cost of snapshots to a flow, in time."""

from __future__ import annotations

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, STATE_KEYS, Grouping, Paces, measured_conf
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@STATE_KEYS
@click.option("--every", type=Paces(), default="0,10,1", show_default=True, help="Seconds between snapshots; 0: none.")
@click.option("--rate", type=click.IntRange(min=1), default=1000, show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Of each variant.")
@click.option("--settle", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds between two.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="How often each has its turn.")
@click.option("--warmup", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Seconds before them.")
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
def snapshots(
    *,
    conf: Conf,
    state_keys: int,
    every: tuple[float, ...],
    rate: int,
    seconds: float,
    settle: float,
    rounds: int,
    warmup: float,
    epoch: float,
    grouping: Grouping | None,
    markdown: bool,
    as_json: bool,
) -> int:
    """Measure the running count with snapshots at several paces, one after the other in one job, under one load.

    Printed are p50 and p99 of each, how they stand to those without snapshots (a pace of 0), the longest gap in output,
    and how many snapshots were taken, with their parts, bytes and duration. With --json the last line is one object.

    \b
    lowtide bench snapshots --rate 50000 --state-keys 1000000 --every 0,10,1
    """  # noqa: D301 - click takes the character
    conf = measured_conf(conf, grouping, epoch)
    from lowtide_bench import variants_report
    from lowtide_bench.phases import Course
    from lowtide_bench.variants import run

    with ended_by_sigterm(), progress() as say:
        result = run(Course(every, rounds, seconds, settle), rate, warmup, conf, say, state_keys=state_keys)
    tables, told = variants_report.tables(result), variants_report.told(result)
    show(result, tables, told, as_json=as_json, markdown=markdown)
    return 0
