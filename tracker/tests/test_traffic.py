"""Traffic is counted alike at both ends, and grows with flushes, not with records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
from sharded_life import INCARNATION, ShardedLife, wait

from lowtide_tracker import Graph, LocalTracker, MinTimes, Traffic

if TYPE_CHECKING:
    from tracker_rig import Client, Running

    Serve = Callable[..., Running]
    Join = Callable[..., Client]


def mirrored(traffic: Traffic) -> Traffic:
    """The same as the other end sees it."""
    return Traffic(
        messages_in=traffic.messages_out,
        bytes_in=traffic.bytes_out,
        messages_out=traffic.messages_in,
        bytes_out=traffic.bytes_in,
        flushes=traffic.flushes,
        acks=traffic.acks,
        notices=traffic.notices,
    )


def _all_applied(local: LocalTracker, _: MinTimes) -> bool:
    return not local.unacknowledged()


def test_both_ends_count_the_same(serve: Serve, join: Join) -> None:
    """Each worker's over all its connections, and all together, a subscriber's among them."""
    running = serve()
    first, second = LocalTracker(1, 3), LocalTracker(2, 3)
    clients = {1: join(running, first), 2: join(running, second), None: join(running)}
    value = first.new_value()
    first.fold(1, [5, 6], value)
    first.heartbeat(0, 8)
    clients[1].flush()
    clients[1].hear_up_to(5)
    clients[2].await_ticks([(1, 7)])
    second.fold(1, [5, 6], value)
    clients[2].flush()
    for client in clients.values():
        client.hear_up_to(8)
    clients[1].connect()
    first.fold(2, [9], first.new_value())
    clients[1].flush()
    # The last thing that the tracker owes anybody: both workers' flushes are applied.
    for client, local in ((clients[1], first), (clients[2], second)):
        client.hear(partial(_all_applied, local))
    server, asked = running.server, {worker: client for worker, client in clients.items() if worker is not None}
    for worker, client in asked.items():
        assert server.traffic_of(worker) == mirrored(client.traffic)
    total = Traffic()
    for client in clients.values():
        total.add(client.traffic)
    assert server.traffic == mirrored(total)
    assert (total.flushes, total.acks, first.flushed_acks, second.flushed_acks) == (3, 5, {1: 2, 2: 1}, {1: 2})


def test_what_a_connection_that_ended_has_counted_stays_counted(serve: Serve, join: Join) -> None:
    running = serve()
    worker, listener = join(running, LocalTracker(1, 3)), join(running)
    for client in (worker, listener):
        client.hear(lambda at: at.era == 1)
    total = Traffic()
    for client in (worker, listener):
        total.add(client.traffic)
        client.close()
    running.wait(lambda: running.server.connected == (0, 0))
    assert running.server.traffic == mirrored(total)
    assert running.server.traffic_of(9) == Traffic()


@pytest.mark.parametrize("records", [1, 100, 10_000])
def test_a_flush_grows_with_ticks_and_not_with_records(records: int) -> None:
    """So the tracker's work is flat in records: what is folded at one tick before a flush is one entry."""
    local = LocalTracker(1, incarnation=1)
    for _ in range(records):
        local.fold(1, [3, 4], local.new_value())
        local.fold(2, [3], local.new_value())
    flush = local.flush()
    assert flush is not None
    assert [ack[:2] for ack in flush.acks] == [(1, 4), (1, 3), (2, 3)]
    assert local.flushed_acks == {1: 2, 2: 1}


def test_of_a_tracker_in_shards_each_counts_its_part_as_the_worker_does() -> None:
    """The parts of a flush are as many messages as there are shards, and have its acks among them."""
    with ShardedLife(Graph({1: []}), {7: 0}, shards=3, workers=[1]) as life:
        local = LocalTracker(1, INCARNATION)
        client = life.worker(local)
        for tick in range(10):
            value = local.new_value()
            local.fold(1, [tick], value)
            local.heartbeat(7, tick)
            client.flush()
            local.fold(1, [tick], value)
            client.flush()
        wait(lambda: local.global_min == 9 and not local.unacknowledged(), client)
        for line, server in zip(client.shards, life.shards, strict=True):
            assert server is not None
            assert server.traffic_of(1) == mirrored(line.traffic)
        parts = [line.traffic for line in client.shards]
        assert sorted(traffic.acks for traffic in parts) == [6, 6, 8]
        assert [traffic.flushes for traffic in parts] == [local.flushed] * 3
        assert sum(local.flushed_acks.values()) == 20
