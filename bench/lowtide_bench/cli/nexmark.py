"""`lowtide bench nexmark`: Nexmark's queries 0 to 8, compared with DuckDB and measured."""

from __future__ import annotations

from typing import Any

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import GROUPING, MARKDOWN, Grouping, measured_conf
from lowtide_bench.cli.running import ended_by_sigterm, progress, show
from lowtide_bench.nexmark import NAMES, find_examples


class Queries(click.ParamType[tuple[str, ...]]):
    """Names of queries, separated by commas."""

    name = "Q[,Q...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of names, each once."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(str(value).split(",")))
        for name in names:
            if name not in NAMES:
                self.fail(f"{name!r} is none of {', '.join(NAMES)}", param, ctx)
        return names


@click.command()
@click.option("--queries", type=Queries(), default=",".join(NAMES), show_default=True, help="Which, in this order.")
@click.option(
    "--records",
    type=click.IntRange(min=1_000),
    default=50_000,
    show_default=True,
    help="Events that lie there before a query starts.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=100),
    default=1_000,
    show_default=True,
    help="Events a second of the live load; the backlog's timestamps are as dense.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long the live load lasts."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of all events.")
@GROUPING
@MARKDOWN
@with_conf
@as_json
def nexmark(
    *,
    conf: Conf,
    queries: tuple[str, ...],
    records: int,
    rate: int,
    seconds: float,
    seed: int,
    grouping: Grouping | None,
    markdown: bool,
    as_json: bool,
) -> int:
    """Run Nexmark's queries on Spark and Kafka, hold each against DuckDB, and measure it.

    A query first works off a backlog, which gives records a second, then has a live load, which gives p50 and p99 from
    the moment in the log at which a result stands to its receipt. Records are those of the topics that a query reads.
    With --json the last line is one object. The exit status is 1 if an answer is not DuckDB's.

    \b
    lowtide bench nexmark --json
    lowtide bench nexmark --queries q5,q7 --rate 5000
    """  # noqa: D301 - click takes the character
    conf = measured_conf(conf, grouping, conf.epoch.duration_s)
    find_examples()
    from nexmark.queries import QUERIES

    from lowtide_bench.nexmark import report
    from lowtide_bench.nexmark.run import Course, run

    with ended_by_sigterm(), progress() as say:
        result = run([QUERIES[name] for name in queries], Course(records, rate, seconds, seed), conf, say)
    show(result, report.tables(result), report.told(result), as_json=as_json, markdown=markdown)
    return 0 if all(each["equal"] for each in result["queries"]) else 1
