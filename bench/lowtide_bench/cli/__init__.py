"""`lowtide bench`: latency of a flow, cost of snapshots, throughput of core and tracker."""

from __future__ import annotations

import click

from lowtide_bench.cli.calls import calls
from lowtide_bench.cli.catch_up import catch_up
from lowtide_bench.cli.core import core
from lowtide_bench.cli.early_keys import early_keys
from lowtide_bench.cli.forgetting import forgetting
from lowtide_bench.cli.growth import growth
from lowtide_bench.cli.latency import latency
from lowtide_bench.cli.look_ups import look_ups
from lowtide_bench.cli.nexmark import nexmark
from lowtide_bench.cli.outlets import outlets
from lowtide_bench.cli.peers import peers
from lowtide_bench.cli.recovery import recovery
from lowtide_bench.cli.snapshots import snapshots
from lowtide_bench.cli.state import state
from lowtide_bench.cli.store import store
from lowtide_bench.cli.telling import telling
from lowtide_bench.cli.throughput import throughput
from lowtide_bench.cli.tracker import tracker
from lowtide_bench.cli.tracking import tracking
from lowtide_bench.cli.windows import windows


@click.group()
def bench() -> None:
    """Measure latency, throughput, catching up, snapshots, recovery, state on disk, sinks, Nexmark, and its peers.

    Each command starts everything it needs and ends it; docs/benchmarks explains the figures.
    """


for command in (
    latency,
    early_keys,
    throughput,
    catch_up,
    snapshots,
    recovery,
    store,
    state,
    core,
    tracker,
    tracking,
    growth,
    windows,
    forgetting,
    outlets,
    calls,
    telling,
    look_ups,
    nexmark,
    peers,
):
    bench.add_command(command)
