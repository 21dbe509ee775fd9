"""`lowtide bench store`: speed of writing state and reading it back."""

from __future__ import annotations

import dataclasses
import tempfile
from typing import Literal

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import MARKDOWN, MOST_STATE_KEYS
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option("--keys", type=click.IntRange(1, MOST_STATE_KEYS), default=1_000_000, show_default=True, help="In state.")
@click.option(
    "--state-bytes", type=click.IntRange(min=0), default=0, show_default=True, help="Of each, beside its count."
)
@click.option(
    "--of",
    "kept",
    type=click.Choice(["scan", "windows"]),
    default="scan",
    show_default=True,
    help="What the state is of: a running count, or a count in windows, each key's one open.",
)
@click.option("--trials", type=click.IntRange(min=1), default=3, show_default=True, help="The figures are medians.")
@click.option("--folder", type=click.Path(), help="Where it is written; by default a temporary folder.")
@MARKDOWN
@with_conf
@as_json
def store(
    *,
    conf: Conf,
    keys: int,
    state_bytes: int,
    kept: Literal["scan", "windows"],
    trials: int,
    folder: str | None,
    markdown: bool,
    as_json: bool,
) -> int:
    """Measure how fast a worker writes the running count's state as parts of a snapshot, and reads them back.

    It goes a worker's own way, without Spark, Kafka and ZooKeeper: a process is forked and writes Parquet. It is
    written to a folder, and to S3 as well if snapshots.url of the conf is one; all of it is deleted again. With --json
    the last line is one object.

    \b
    lowtide bench store --keys 1000000 --state-bytes 80
    lowtide bench store --of windows
    lowtide bench store --set snapshots.url=s3://bucket/bench --set snapshots.endpoint=http://127.0.0.1:7070
    """  # noqa: D301 - click takes the character
    from lowtide.conf.store_access import store_setting
    from lowtide_bench import storing_report
    from lowtide_bench.storing import run

    with ended_by_sigterm(), progress() as say, tempfile.TemporaryDirectory("-lowtide-bench") as mine:
        local = store_setting(dataclasses.replace(conf.snapshots, url=folder or mine))
        remote = [store_setting(conf.snapshots)] if conf.snapshots.url.startswith("s3:") else []
        result = run(keys, state_bytes, kept, trials, [local, *remote], say)
    show(result, storing_report.tables(result), storing_report.told(result), as_json=as_json, markdown=markdown)
    return 0
