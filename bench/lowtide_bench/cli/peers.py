"""`lowtide bench peers`: Lowtide and its peers, measured alike."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from lowtide.conf import Conf
from lowtide_bench.cli.options import TRIES, Names, Rates, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress
from lowtide_bench.peers import FLOWS, NAMES, Extent


@click.command()
@Names(NAMES).option("--systems", "Measure these, in this order.")
@click.option(
    "--flow", type=click.Choice(list(FLOWS)), default="running-count", show_default=True, help="What each does."
)
@click.option(
    "--rates",
    type=Rates(),
    default=(),
    help="Records a second, or documents; by default 1000,50000 or 100,1000.",
)
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long is measured.")
@click.option(
    "--warmup", "warmup_s", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Seconds before that."
)
@click.option("--limits/--no-limits", default=True, help="Find the highest rate that each keeps up with.")
@click.option("--kill/--no-kill", default=True, help="Kill each with SIGKILL once, at the lowest rate.")
@TRIES
@gathered(Extent)
@click.option("--table", "as_table", is_flag=True, help="Print the README's table before the last line.")
@click.option(
    "--from",
    "saved",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing: take the last line of this file.",
)
def peers(*, systems: tuple[str, ...], options: Extent, as_table: bool, saved: Path | None) -> int:
    """Measure the running count of 1,000 keys, or another flow, on each system, one after another on one broker.

    The last line is one object. Run it by `make peers`, which brings what the systems are set up with.

    \b
    make peers ARGS='--systems lowtide,bytewax --table'
    """  # noqa: D301 - click takes the character
    from lowtide_bench.peers.measure import run
    from lowtide_bench.peers.systems import SYSTEMS
    from lowtide_bench.peers.table import table

    options = dataclasses.replace(options, rates=options.rates or FLOWS[options.flow])
    if saved is not None:
        result = json.loads(saved.read_text().splitlines()[-1])
    else:
        with ended_by_sigterm(), progress() as say:
            result = run([SYSTEMS[name] for name in systems], options, Conf(), say)
    if as_table:
        click.echo(table(result))
    click.echo(json.dumps(result))
    return 0
