"""`lowtide bench core`: what the parts of the core do in a second."""

from __future__ import annotations

import json

import click
from rich.console import Console

from lowtide.cli.bench_running import ended_by_sigterm, progress
from lowtide.cli.options import as_json


@click.command()
@click.option("--trials", type=click.IntRange(min=1), default=5, show_default=True, help="Of each part, at most.")
@click.option("--limit", type=click.FloatRange(min=0), default=2.0, show_default=True, help="Seconds for these.")
@click.option("--markdown", is_flag=True, help="Print the tables as markdown.")
@as_json
def core(*, trials: int, limit: float, markdown: bool, as_json: bool) -> int:
    """Measure the core part by part on one thread: tracker, labels, scan, last(2), barrier. It needs no service.

    Each figure is the median of several trials. With --json the last line is one object, with all variants and the
    least and the most of each figure.
    """
    from lowtide.bench import core_report
    from lowtide.bench.core import run
    from lowtide.bench.core_timing import Extent

    with ended_by_sigterm(), progress() as say:
        result = run(Extent(trials=trials, limit_s=limit), say)
    if markdown:
        click.echo(core_report.markdown(result))
    if as_json:
        click.echo(json.dumps(result))
    elif not markdown:
        Console().print(core_report.report(result))
    return 0
