"""`lowtide bench core`: cost of a batch in the workers, at the sizes that batches have."""

from __future__ import annotations

import click

from lowtide.cli.options import as_json
from lowtide_bench.cli.options import MARKDOWN, Printed, Rates, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option("--sizes", type=Rates(), default="1,3,10,100,1000", show_default=True, help="Records in a batch.")
@click.option("--cold/--warm", default=None, help="Measure with evicted caches only, or in a tight loop only.")
@click.option("--samples", type=click.IntRange(min=2), default=100, show_default=True, help="Of each step; warm more.")
@MARKDOWN
@as_json
@gathered(Printed)
def core(*, sizes: tuple[int, ...], cold: bool | None, samples: int, options: Printed) -> int:
    """Measure the way of a batch through both levels of a flow and the tracker, in µs, on one thread.

    It needs no service. Level 0 turns messages into frames, level 1 frames into messages for the producer. Cold means
    that other data and code are in the caches, as for a worker that wakes a few hundred times a second. Each figure is
    the median of undisturbed calls. With --json the last line is one object.

    \b
    lowtide bench core --cold --sizes 1,10
    """  # noqa: D301 - click takes the character
    from lowtide_bench import core_report
    from lowtide_bench.core import run
    from lowtide_bench.core_timing import STATES

    states = STATES if cold is None else STATES[cold:][:1]
    with ended_by_sigterm(), progress() as say:
        result = run(sizes, states, samples, say)
    show(result, core_report, options)
    return 0
