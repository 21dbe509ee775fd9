"""`lowtide bench`: how long records take through a flow, what snapshots cost, what core and tracker do in a second."""

from __future__ import annotations

import click

from lowtide_bench.cli.catch_up import catch_up
from lowtide_bench.cli.core import core
from lowtide_bench.cli.forgetting import forgetting
from lowtide_bench.cli.latency import latency
from lowtide_bench.cli.nexmark import nexmark
from lowtide_bench.cli.recovery import recovery
from lowtide_bench.cli.snapshots import snapshots
from lowtide_bench.cli.store import store
from lowtide_bench.cli.telling import telling
from lowtide_bench.cli.throughput import throughput
from lowtide_bench.cli.tracker import tracker
from lowtide_bench.cli.windows import windows


@click.group()
def bench() -> None:
    """Measure latency and throughput, catching up, what snapshots cost, how soon a job is back, and Nexmark.

    Each command starts all that it needs and ends it; docs/benchmarks says what the figures mean.
    """


for command in (
    latency,
    throughput,
    catch_up,
    snapshots,
    recovery,
    store,
    core,
    tracker,
    windows,
    forgetting,
    telling,
    nexmark,
):
    bench.add_command(command)
