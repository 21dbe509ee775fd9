"""`lowtide bench recovery`: time until output flows again after a process is killed."""

from __future__ import annotations

from typing import Literal

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, STATE_KEYS, Grouping, measured_conf
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@click.command()
@click.option("--kill", "victim", type=click.Choice(["worker", "driver"]), required=True, help="What SIGKILL goes to.")
@click.option("--rate", type=click.IntRange(min=1), default=1000, show_default=True, help="Records a second.")
@click.option("--kills", "count", type=click.IntRange(min=1), default=1, show_default=True, help="How many.")
@click.option(
    "--every", type=click.FloatRange(min=5), default=40.0, show_default=True, help="Seconds from one kill to the next."
)
@click.option(
    "--snapshot-every",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Snapshots are taken and committed at this pace; 0: none, and all is replayed.",
)
@STATE_KEYS
@click.option(
    "--warmup", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Seconds before the first."
)
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
def recovery(
    *,
    conf: Conf,
    victim: Literal["worker", "driver"],
    rate: int,
    count: int,
    every: float,
    snapshot_every: float,
    state_keys: int,
    warmup: float,
    epoch: float,
    grouping: Grouping | None,
    markdown: bool,
    as_json: bool,
) -> int:
    """Measure the seconds from SIGKILL until output flows again at the reader, of the running count under load.

    The job runs as `lowtide run` runs it. A life that lost a worker is followed by another in the same program; a
    driver program that was killed is started again at once. With --json the last line is one object.

    \b
    lowtide bench recovery --kill worker --rate 10000 --kills 5
    lowtide bench recovery --kill driver --rate 10000 --state-keys 1000000
    """  # noqa: D301 - click takes the character
    conf = measured_conf(conf, grouping, epoch)
    from lowtide_bench import recovering_report
    from lowtide_bench.recovering import Kills, run

    with ended_by_sigterm(), progress() as say:
        kills = Kills(victim, count, every)
        result = run(kills, rate, warmup, conf, say, snapshot_every_s=snapshot_every, state_keys=state_keys)
    tables, told = recovering_report.tables(result), recovering_report.told(result)
    show(result, tables, told, as_json=as_json, markdown=markdown)
    return 0
