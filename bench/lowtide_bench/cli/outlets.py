"""`lowtide bench outlets`: cost of a job's sinks beside Kafka, and the time until their readers see records."""

from __future__ import annotations

from dataclasses import dataclass

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, TRIES, Names, OfJob, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show

STORES = ("kafka", "parquet", "lines", "delta", "iceberg", "redis", "postgres")


@dataclass(frozen=True, kw_only=True)
class Options(OfJob):
    """Options of the command."""

    stores: tuple[str, ...]
    records: int
    rounds: int
    rate: int
    seconds: float
    deliveries: int
    tries: int


@click.command()
@Names(STORES).option("--stores", "Work the backlog off into these.")
@click.option("--records", type=click.IntRange(1_000), default=500_000, show_default=True, help="In the backlog.")
@click.option("--rounds", type=click.IntRange(0), default=1, show_default=True, help="Of all stores in turn; 0: none.")
@click.option("--rate", type=click.IntRange(1), default=1_000, show_default=True, help="Records a second, paced.")
@click.option("--seconds", type=click.FloatRange(0), default=125.0, show_default=True, help="Of the pace; 0: none.")
@click.option(
    "--deliveries", type=click.IntRange(0), default=300, show_default=True, help="To PostgreSQL, of each size; 0: none."
)
@TRIES
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def outlets(*, options: Options) -> int:
    """Measure the sinks of a job: a backlog worked off into each, files and rows at a pace, PostgreSQL's statement.

    It starts PostgreSQL and Redis as the tests do, so it runs in a clone. With --json the last line is one object.

    \b
    lowtide bench outlets --stores kafka,parquet,delta --rounds 3
    lowtide bench outlets --rounds 0 --seconds 0 --deliveries 1000
    """  # noqa: D301 - click takes the character
    conf = options.measured()
    from lowtide_bench.outlets import report
    from lowtide_bench.outlets.run import Extent, run

    paced = options.rate, options.seconds, options.deliveries, options.tries
    with ended_by_sigterm(), progress() as say:
        result = run(Extent(options.stores, options.records, options.rounds, *paced), conf, say)
    show(result, report, options)
    return 0
