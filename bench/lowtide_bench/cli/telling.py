"""`lowtide bench telling`: delay of a subscriber's news of what a quiet job has delivered."""

from __future__ import annotations

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import EPOCH, MARKDOWN, OfJob, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option("--records", type=click.IntRange(min=2), default=60, show_default=True, help="How many are written.")
@click.option("--every", type=click.FloatRange(min=0.5), default=1.5, show_default=True, help="Seconds between two.")
@EPOCH
@MARKDOWN
@with_conf
@as_json
@gathered(OfJob)
def telling(*, records: int, every: float, options: OfJob) -> int:
    """Measure how long after a record is out a quiet job's subscriber knows delivered time and min time.

    A record is out when a reader of committed records has it. With --json the last line is one object.

    \b
    lowtide bench telling --records 60 --every 1.5
    """  # noqa: D301 - click takes the character
    conf = options.measured()
    from lowtide_bench import telling as measured

    with ended_by_sigterm(), progress() as say:
        result = measured.run(records, every, conf, say)
    show(result, measured, options)
    return 0
