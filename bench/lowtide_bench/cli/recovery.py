"""`lowtide bench recovery`: time until output flows again after a process is killed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from lowtide.cli.options import as_json, with_conf
from lowtide_bench.cli.options import EPOCH, GROUPING, MARKDOWN, STATE_KEYS, OfJob, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show


@dataclass(frozen=True, kw_only=True)
class Options(OfJob):
    """Options of the command."""

    victim: Literal["worker", "driver"]
    rate: int
    kills: int
    every: float
    snapshot_every_s: float
    state_keys: int
    warmup: float
    standby: bool


@click.command()
@click.option("--kill", "victim", type=click.Choice(["worker", "driver"]), required=True, help="Send SIGKILL to this.")
@click.option("--rate", type=click.IntRange(min=1), default=1000, show_default=True, help="Records a second.")
@click.option("--kills", type=click.IntRange(min=1), default=1, show_default=True, help="How many.")
@click.option(
    "--every", type=click.FloatRange(min=5), default=40.0, show_default=True, help="Seconds from one kill to the next."
)
@click.option(
    "--snapshot-every",
    "snapshot_every_s",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Take and commit snapshots at this pace; 0: none, and all is replayed.",
)
@STATE_KEYS
@click.option(
    "--warmup", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Seconds before the first."
)
@click.option("--standby", is_flag=True, help="A second program waits, and takes over from each killed driver.")
@EPOCH
@GROUPING
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def recovery(*, options: Options) -> int:
    """Measure the seconds from SIGKILL until the output of the running count flows again, under load.

    The job runs as `lowtide run` runs it: after the loss of a worker the same program starts another life. A killed
    driver program is started again at once. With --json the last line is one object.

    \b
    lowtide bench recovery --kill worker --rate 10000 --kills 5
    lowtide bench recovery --kill driver --rate 10000 --state-keys 1000000
    """  # noqa: D301 - click takes the character
    if options.standby and options.victim != "driver":
        raise click.UsageError("a standby takes over from a driver: add --kill driver")
    conf = options.measured()
    from lowtide_bench import recovering_report
    from lowtide_bench.recovering import Kills, run

    kills = Kills(options.victim, options.kills, options.every, options.standby)
    every_s, keys = options.snapshot_every_s, options.state_keys
    with ended_by_sigterm(), progress() as say:
        result = run(kills, options.rate, options.warmup, conf, say, snapshot_every_s=every_s, state_keys=keys)
    show(result, recovering_report, options)
    return 0
