"""`lowtide bench`: how long records take through a flow, what snapshots cost, what the core does in a second."""

from __future__ import annotations

import click

from lowtide.cli.bench_catch_up import catch_up
from lowtide.cli.bench_core import core
from lowtide.cli.bench_latency import latency
from lowtide.cli.bench_recovery import recovery
from lowtide.cli.bench_snapshots import snapshots
from lowtide.cli.bench_store import store
from lowtide.cli.bench_throughput import throughput


@click.group()
def bench() -> None:
    """Measure latency and throughput, how a job catches up, what snapshots cost, and how soon a job is back.

    Each command starts all that it needs and ends it; docs/benchmarks says what the figures mean.
    """


for command in (latency, throughput, catch_up, snapshots, recovery, store, core):
    bench.add_command(command)
