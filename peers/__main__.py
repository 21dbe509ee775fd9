"""`make peers`: measure Lowtide and its peers alike, and print one object as the last line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lowtide.conf import Conf
from lowtide_bench.cli.options import Rates
from lowtide_bench.cli.running import ended_by_sigterm, progress
from peers.measure import Extent, run
from peers.systems import SYSTEMS, WARMING
from peers.table import table


class Systems(click.ParamType[tuple[str, ...]]):
    """Names of systems, separated by commas."""

    name = "NAME[,NAME...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return a tuple of names, each of a system."""
        names = value if isinstance(value, tuple) else tuple(str(value).split(","))
        unknown = [name for name in names if name not in SYSTEMS]
        if unknown:
            self.fail(f"there is no system {', '.join(unknown)}; there are {', '.join(SYSTEMS)}", param, ctx)
        return names


@click.command()
@click.option("--systems", type=Systems(), default=",".join(SYSTEMS), help="Which; all by default.")
@click.option("--rates", type=Rates(), default="1000,50000", show_default=True, help="Records a second.")
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long is measured.")
@click.option("--warmup", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Seconds before that.")
@click.option(
    "--limits/--no-limits", default=True, help="Look for the highest rate that each keeps up with; or do not."
)
@click.option("--kill/--no-kill", default=True, help="Kill each with SIGKILL once, at the lowest rate; or do not.")
@click.option(
    "--warm-broker", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds before all of it."
)
@click.option("--table", "as_table", is_flag=True, help="Print the README's table before the last line.")
@click.option(
    "--from",
    "saved",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing: take the last line of this file.",
)
def main(
    *,
    systems: tuple[str, ...],
    rates: tuple[int, ...],
    seconds: float,
    warmup: float,
    limits: bool,
    kill: bool,
    warm_broker: float,
    as_table: bool,
    saved: Path | None,
) -> None:
    """Measure the running count of 1,000 keys, Kafka to Kafka, on each system, one after another on one broker."""
    if saved is not None:
        result = json.loads(saved.read_text().splitlines()[-1])
    else:
        extent = Extent(rates, seconds, warmup, limits, kill, warm_broker)
        with ended_by_sigterm(), progress() as say:
            result = run([SYSTEMS[name] for name in systems], WARMING, extent, Conf(), say)
    if as_table:
        click.echo(table(result))
    click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
