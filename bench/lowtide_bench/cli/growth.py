"""`lowtide bench growth`: what grows with fronts, parallelism, records, keys, open ticks and state, counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from lowtide.cli.options import as_json
from lowtide_bench.cli.options import MARKDOWN, PLOTS, Names, Printed, gathered
from lowtide_bench.cli.running import draw, ended_by_sigterm, progress, show

SWEPT = ("fronts", "parallelism", "both", "records", "keys", "ticks", "state-keys", "state-bytes", "changes")
"""The names of all sweeps: those of `lowtide_bench.growth.sweeps`, which is slow to import."""


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Options of the command."""

    plots: Path | None


@click.command()
@Names(SWEPT).option("--sweeps", "Count these.")
@PLOTS
@MARKDOWN
@as_json
@gathered(Options)
def growth(*, sweeps: tuple[str, ...], options: Options) -> int:
    """Count what a job's workers and tracker exchange and keep as it grows, and fit each count to a class of growth.

    It needs no service and times nothing: workers, tracker and the saver of snapshots are the product's, in one
    process. A class is O(1), O(n), O(n log n) or O(n^2), the first that is within 5 % of each count. One that is not
    the documented class is marked. With --json the last line is one object.

    \b
    lowtide bench growth --sweeps fronts,parallelism
    """  # noqa: D301 - click takes the character
    from lowtide_bench.growth import report
    from lowtide_bench.growth.plots import plots
    from lowtide_bench.growth.run import run

    with ended_by_sigterm(), progress() as say:
        result = run(sweeps, say)
    draw(plots(result), options.plots)
    show(result, report, options)
    return 0
