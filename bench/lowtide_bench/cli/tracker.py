"""`lowtide bench tracker`: capacity of one tracker process, delay of its notices, and growth of its traffic."""

from __future__ import annotations

from pathlib import Path

import click

from lowtide.cli.options import as_json
from lowtide_bench.cli.options import MARKDOWN, Rates
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option("--seconds", type=click.FloatRange(min=1), default=5.0, show_default=True, help="Of each run.")
@click.option("--entries", type=click.IntRange(min=1), default=20, show_default=True, help="Acks of a flush.")
@click.option(
    "--among", "capacity_workers", type=click.IntRange(min=2), default=100, show_default=True,
    help="Workers where their number is not what changes.",
)  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0.5), default=20.0, show_default=True, help="Flushes/s for latency.")
@click.option("--workers", type=Rates(), default="10,100,1000", show_default=True, help="For traffic by workers.")
@click.option(
    "--traffic-rate", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="Flushes/s for traffic."
)
@click.option("--depths", type=Rates(), default="1,3,10,30", show_default=True, help="For traffic by segments.")
@click.option("--depth", type=click.IntRange(min=1), default=2, show_default=True, help="Segments otherwise.")
@click.option(
    "--records", type=Rates(), default="10,100,1000,10000,100000", show_default=True, help="Of a worker, a second."
)
@click.option("--shards", type=Rates(), default="1,2,4,8", show_default=True, help="For work by shards.")
@click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw the figures into this folder, as SVG."
)
@MARKDOWN
@as_json
def tracker(
    *, seconds: float, entries: int, capacity_workers: int, rate: float, workers: tuple[int, ...], traffic_rate: float,
    depths: tuple[int, ...], depth: int, records: tuple[int, ...], shards: tuple[int, ...], plots: Path | None,
    markdown: bool, as_json: bool,
) -> int:  # fmt: skip
    """Measure one tracker process with simulated workers over sockets, and count its traffic.

    It needs no service. The tracker is the process that the service of a job starts; another process has all workers,
    with a connection each, which flush in rounds. Numbers of workers are even: half send, half receive. Traffic by
    records and by shards is counted in this process. With --json the last line is one object.

    \b
    lowtide bench tracker --json
    lowtide bench tracker --workers 10 --depths 1 --seconds 2
    """  # noqa: D301 - click takes the character
    odd = [count for count in (capacity_workers, *workers) if count % 2]
    if odd:
        raise click.BadParameter(f"{odd[0]} workers: half of them send and half receive, so their number is even")
    from lowtide_bench.tracking import report
    from lowtide_bench.tracking.plots import draw
    from lowtide_bench.tracking.run import Asked, run

    asked = Asked(
        seconds=seconds,
        entries=entries,
        capacity_workers=capacity_workers,
        rate=rate,
        workers=workers,
        traffic_rate=traffic_rate,
        depths=depths,
        depth=depth,
        records=records,
        shards=shards,
    )
    with ended_by_sigterm(), progress() as say:
        result = run(asked, say)
    if plots is not None:
        draw(result, plots)
    show(result, report.tables(result), report.told(result), as_json=as_json, markdown=markdown)
    return 0
