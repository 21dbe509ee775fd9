"""`lowtide bench store`: speed of writing state and reading it back."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from typing import Literal

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import MARKDOWN, MOST_STATE_KEYS, Printed, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Options of the command."""

    keys: int
    state_bytes: int
    kept: Literal["scan", "windows"]
    trials: int
    changes: int
    folder: str | None


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
    help="Write a running count's state, or that of a count with one open window a key.",
)
@click.option("--trials", type=click.IntRange(min=1), default=3, show_default=True, help="The figures are medians.")
@click.option(
    "--changes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Also save after so many records of random keys, 64 times by deltas, 8 by whole hash units; of a scan.",
)
@click.option("--folder", type=click.Path(), help="Where it is written; by default a temporary folder.")
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def store(*, conf: Conf, options: Options) -> int:
    """Measure how fast a worker writes state as parts of a snapshot, and reads them back.

    It needs no service: as in a worker, a forked process writes Parquet. It writes to a folder, and to S3 or
    Azure if snapshots.url of the conf is there, and deletes all of it. With --json the last line is one object.

    \b
    lowtide bench store --keys 1000000 --state-bytes 80
    lowtide bench store --of windows
    lowtide bench store --keys 1000000 --state-bytes 80 --trials 1 --changes 5000
    lowtide bench store --set snapshots.url=s3://bucket/bench --set snapshots.endpoint=http://127.0.0.1:7070
    """  # noqa: D301 - click takes the character
    from lowtide.conf.store_access import store_setting
    from lowtide_bench import changing, storing_report
    from lowtide_bench.storing import run

    if options.changes and options.kept != "scan":
        raise click.UsageError("--changes are of a scan's state: leave out --of windows")

    with ended_by_sigterm(), progress() as say, tempfile.TemporaryDirectory("-lowtide-bench") as mine:
        local = store_setting(dataclasses.replace(conf.snapshots, url=options.folder or mine))
        remote = [store_setting(conf.snapshots)] if conf.snapshots.url.startswith(("s3:", "az:")) else []
        stores = [local, *remote]
        result = run(options.keys, options.state_bytes, options.kept, options.trials, stores, say)
        if options.changes:
            result["changing"] = changing.run(options.keys, options.state_bytes, options.changes, local, say)
    show(result, storing_report, options)
    return 0
