"""`lowtide bench nexmark`: Nexmark's queries 0 to 8, compared with DuckDB and measured."""

from __future__ import annotations

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import GROUPING, MARKDOWN, Names, OfJob, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show
from lowtide_bench.nexmark import NAMES, find_examples


@click.command()
@Names(NAMES).option("--queries", "Run these, in this order.")
@click.option(
    "--records",
    type=click.IntRange(min=1_000),
    default=50_000,
    show_default=True,
    help="Events of the backlog.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=100),
    default=1_000,
    show_default=True,
    help="Events a second, both live and in the backlog's timestamps.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Duration of the live load."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all events.")
@GROUPING
@MARKDOWN
@with_conf
@as_json
@gathered(OfJob)
def nexmark(*, queries: tuple[str, ...], records: int, rate: int, seconds: float, seed: int, options: OfJob) -> int:
    """Run Nexmark's queries on Spark and Kafka, compare each answer with DuckDB's, and measure it.

    A query first works off a backlog, which gives records a second. Then a live load gives the latency of results, from
    the event that completes one to its receipt. Only records of topics that a query reads count. With --json the last
    line is one object. The exit status is 1 if an answer is not DuckDB's.

    \b
    lowtide bench nexmark --json
    lowtide bench nexmark --queries q5,q7 --rate 5000
    """  # noqa: D301 - click takes the character
    conf = options.measured()
    find_examples()
    from nexmark.queries import QUERIES

    from lowtide_bench.nexmark import report
    from lowtide_bench.nexmark.run import Course, run

    with ended_by_sigterm(), progress() as say:
        result = run([QUERIES[name] for name in queries], Course(records, rate, seconds, seed), conf, say)
    show(result, report, options)
    return 0 if all(each["equal"] for each in result["queries"]) else 1
