"""`lowtide bench forgetting`: a worker's memory while millions of keys come once and never again."""

from __future__ import annotations

import click

from lowtide.cli.options import as_json
from lowtide_bench.cli.options import MARKDOWN, Printed, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option("--keys", type=click.IntRange(1_000), default=10_000_000, show_default=True, help="Each comes once.")
@MARKDOWN
@as_json
@gathered(Printed)
def forgetting(*, keys: int, options: Printed) -> int:
    """Measure a worker's memory while keys come once and never again: through scan with ttl=, deduplicate, and windows.

    It needs no service. A key's state may be forgotten after a second of log time. With --json the last line is one
    object.

    \b
    lowtide bench forgetting --keys 1000000
    """  # noqa: D301 - click takes the character
    from lowtide_bench import forgetting_report
    from lowtide_bench.forgetting import run

    with ended_by_sigterm(), progress() as say:
        result = run(keys, say)
    show(result, forgetting_report, options)
    return 0
