"""`lowtide bench catch-up`: speed of working off a backlog, whatever time its timestamps cover."""

from __future__ import annotations

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, SUBJECTS, WARM, Grouping, Paces, measured_conf
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command("catch-up")
@click.option(
    "--spans",
    type=Paces(),
    default="1,60,1500",
    show_default=True,
    help="Seconds from a backlog's first timestamp to its last, which is now.",
)
@click.option(
    "--records",
    type=click.IntRange(min=1_000),
    default=1_000_000,
    show_default=True,
    help="How many are in each backlog.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often each span is measured, all in turn; the figures are medians.",
)
@WARM
@SUBJECTS
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
def catch_up(
    *,
    conf: Conf,
    spans: tuple[float, ...],
    records: int,
    rounds: int,
    warm_s: float,
    subjects: tuple[str, ...],
    epoch: float,
    grouping: Grouping | None,
    markdown: bool,
    as_json: bool,
) -> int:
    """Measure how fast the running count works off a backlog, beside the bare loop and the skeleton on the same log.

    For each span a topic is filled with records whose timestamps are spread evenly over it; then the systems start on
    it, one after another. Time counts from the first record of output to the last, so it includes no start. A job that
    catches up at the machine's speed has one rate for all spans. With --json the last line is one object.
    """
    conf = measured_conf(conf, grouping, epoch)
    from lowtide_bench import catching_up_report
    from lowtide_bench.catching_up import run

    with ended_by_sigterm(), progress() as say:
        result = run(spans, records, rounds, conf, say, subjects=subjects, warm_s=warm_s)
    tables, told = catching_up_report.tables(result), catching_up_report.told(result)
    show(result, tables, told, as_json=as_json, markdown=markdown)
    return 0
