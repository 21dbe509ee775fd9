"""`lowtide bench core`: cost of a batch in the workers, at the sizes that batches have."""

from __future__ import annotations

import click

from lowtide.cli.options import as_json
from lowtide_bench.cli.options import MARKDOWN, Rates
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option("--sizes", type=Rates(), default="1,3,10,100,1000", show_default=True, help="Records in a batch.")
@click.option("--cold/--warm", default=None, help="Only with evicted caches, or only in a tight loop; both by default.")
@click.option("--samples", type=click.IntRange(min=2), default=100, show_default=True, help="Of each step; warm more.")
@MARKDOWN
@as_json
def core(*, sizes: tuple[int, ...], cold: bool | None, samples: int, markdown: bool, as_json: bool) -> int:
    """Measure the way of a batch through both levels of a flow and the tracker, in µs, on one thread.

    It needs no service. Level 0 makes frames of messages, level 1 makes messages for the producer of frames. Cold is
    what a worker finds that wakes a few hundred times a second: other data and other code in the caches. Each figure is
    the median of calls at which a calibration loop ran undisturbed. With --json the last line is one object.

    \b
    lowtide bench core --cold --sizes 1,10
    """  # noqa: D301 - click takes the character
    from lowtide_bench import core_report
    from lowtide_bench.core import run
    from lowtide_bench.core_timing import STATES

    states = STATES if cold is None else STATES[cold:][:1]
    with ended_by_sigterm(), progress() as say:
        result = run(sizes, states, samples, say)
    show(result, core_report.tables(result), core_report.told(result), as_json=as_json, markdown=markdown)
    return 0
