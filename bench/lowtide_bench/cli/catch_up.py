"""`lowtide bench catch-up`: speed of working off a backlog, whatever time its timestamps cover."""

from __future__ import annotations

from dataclasses import dataclass

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, SUBJECTS, OfJob, Paces, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(OfJob):
    """Options of the command."""

    spans: tuple[float, ...]
    records: int
    rounds: int
    subjects: tuple[str, ...]


@click.command("catch-up")
@click.option(
    "--spans",
    type=Paces(),
    default="1,60,1500",
    show_default=True,
    help="Seconds from a backlog's first timestamp to its last, which is now.",
)
@click.option(
    "--records", type=click.IntRange(min=1_000), default=1_000_000, show_default=True, help="Records in each backlog."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Measure each span this often, all in turn; the figures are medians.",
)
@SUBJECTS
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def catch_up(*, options: Options) -> int:
    """Measure how fast the running count works off a backlog, beside the bare loop and the skeleton on the same log.

    The records' timestamps are spread evenly over each span. Time counts from the first record of output to the last.
    With --json the last line is one object.
    """
    conf = options.measured()
    from lowtide_bench import catching_up_report
    from lowtide_bench.catching_up import run

    with ended_by_sigterm(), progress() as say:
        result = run(options.spans, options.records, options.rounds, conf, say, subjects=options.subjects)
    show(result, catching_up_report, options)
    return 0
