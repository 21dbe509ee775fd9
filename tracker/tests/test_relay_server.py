"""Relays over real sockets: the answers of one tracker, whatever is killed or cut off (R5, R10)."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import cast

import pytest
from hanging import HANGS_S
from life_job import DUES, FRONTS, GRAPH, Job
from relayed_life import RelayedLife
from sharded_life import INCARNATION, SECRET, mend, wait

from lowtide_tracker import (
    Floor,
    Flush,
    Graph,
    LifeEnded,
    LocalTracker,
    Notice,
    Refused,
    TrackerClient,
)
from lowtide_tracker.relay_server import RelayServer
from lowtide_tracker.up_line import UpLine


@pytest.mark.parametrize("seed", range(6))
def test_the_answers_are_one_trackers_whatever_is_killed(seed: int) -> None:
    rng = random.Random(seed)
    by = {worker: rng.randrange(2) for worker in range(4) if rng.random() < 0.8}
    with RelayedLife(Graph(GRAPH), dict.fromkeys(FRONTS, 0), relays=2, by=by, dues=DUES) as life:
        job = Job(life, rng)
        for _ in range(3):
            for _ in range(150):
                job.step()
            what = rng.choice(["relay", "tracker", "both", "cut"])
            if what in ("relay", "both"):
                life.kill_relay(rng.randrange(2))
            if what in ("tracker", "both"):
                life.kill_tracker()
            for _ in range(3 if what == "cut" else 0):
                job.cut()
        job.end()
        heard = life.worker(LocalTracker(9, INCARNATION))
        reported: list[Floor] = []
        until = time.monotonic() + HANGS_S
        while len(reported) < job.offset:
            assert time.monotonic() < until
            reported += [floor for notice in heard.receive(0.1) for floor in notice.floors]
        assert len(reported) == job.offset


def two(life: RelayedLife) -> tuple[LocalTracker, TrackerClient, LocalTracker, TrackerClient]:
    one, other = (LocalTracker(worker, INCARNATION, start=0) for worker in (1, 2))
    life.workers = [1, 2]
    return one, life.worker(one), other, life.worker(other)


def hear_to_the_end(client: TrackerClient) -> None:
    """Receive until something is raised."""
    until = time.monotonic() + HANGS_S
    while time.monotonic() < until:
        client.receive(0.1)


def test_workers_of_a_relay_are_one_connection_of_the_tracker() -> None:
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by=dict.fromkeys(range(40), 0)) as life:
        life.workers = range(40)
        locals_ = [LocalTracker(worker, INCARNATION, start=0) for worker in range(40)]
        clients = [life.worker(local) for local in locals_]
        locals_[0].heartbeat(7, 5)
        wait(lambda: all(local.min_time(1) == 5 for local in locals_), *clients)
        assert life.server.connected == (40, 1)
        before = life.server.traffic
        for _ in range(20):
            values = [local.new_value() for local in locals_]
            for each, local in enumerate(locals_):
                local.fold(1, [9], values[each])
                local.fold(1, [8], values[each - 1])
            for client in clients:
                client.flush()
        wait(lambda: not any(local.unacknowledged() for local in locals_), *clients)
        flushes = life.server.traffic.flushes - before.flushes
        assert flushes <= 20 * 40 / 4, "most flushes came together"
        assert life.faults == []


def test_a_worker_is_told_what_the_tracker_and_not_the_relay_has_applied() -> None:
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by={1: 0, 2: 0}) as life:
        one, first, _, second = two(life)
        one.heartbeat(7, 5)
        wait(lambda: one.min_time(1) == 5, first, second)
        life.kill_tracker()
        one.heartbeat(7, 8)
        wait(lambda: life.server.tracker.missing == (2,), first)
        assert one.unacknowledged(), "nobody has applied it"
        wait(lambda: one.min_time(1) == 8 and not one.unacknowledged(), first, second)
        assert life.faults == []


def test_fronts_open_and_close_through_a_relay() -> None:
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by={1: 0, 2: 0}) as life:
        one, first, other, second = two(life)
        assert second.open_front(8, 3) == 3
        life.fronts[8] = 3
        one.heartbeat(7, 9)
        wait(lambda: one.min_time(1) == 3, first, second)
        life.kill_relay(0)
        other.heartbeat(8, 6)
        wait(lambda: one.min_time(1) == 6, first, second)
        life.kill_tracker()
        wait(lambda: other.min_times.era == 2, first, second)
        second.close_front(8)
        wait(lambda: one.min_time(1) == 9 == other.min_time(1), first, second)
        assert life.faults == []


def test_a_worker_that_goes_past_its_relay_is_not_applied_twice() -> None:
    """The tracker reads nothing more of the relay that spoke for it; the relay's others come back."""
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by={1: 0, 2: 0}) as life:
        one, first, other, second = two(life)
        one.heartbeat(7, 5)
        wait(lambda: other.min_time(1) == 5, first, second)
        first.close()
        one.heartbeat(7, 6)
        direct = TrackerClient(life.address, secret=SECRET, incarnation=INCARNATION, local=one)
        direct.connect()
        wait(lambda: other.min_time(1) == 6, direct, second)
        direct.close()
        assert life.faults == []


def test_a_request_of_a_snapshot_comes_with_its_notice_to_all_and_to_those_who_come_later() -> None:
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by={1: 0, 2: 0, 3: 0}) as life:
        one, first, _, second = two(life)
        one.heartbeat(7, 5)
        wait(lambda: one.min_time(1) == 5, first, second)

        async def ask() -> None:
            life.server.announce([life.server.tracker.request(4)])

        life.do(ask())
        third = life.worker(LocalTracker(3, INCARNATION, start=0))
        for client in (first, second, third):
            heard: list[Notice] = []
            until = time.monotonic() + HANGS_S
            while not any(notice.request for notice in heard):
                assert time.monotonic() < until
                mend(client)
                heard += client.receive(0.1)
            assert [notice.request.number for notice in heard if notice.request][-1] == 4


def test_what_a_worker_does_wrong_ends_the_life_and_all_of_the_relay_learn_why() -> None:
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by={1: 0, 2: 0}) as life:
        one, first, _, second = two(life)
        one.heartbeat(7, 5)
        wait(lambda: one.min_time(1) == 5, first, second)
        second.send_flush(Flush.of(2, 1, [(1, 3, 9)]))
        for client in (first, second):
            with pytest.raises(LifeEnded, match="tick 3 is below min time 5"):
                hear_to_the_end(client)
        assert "tick 3 is below min time 5" in str(life.faults[0])
        assert "tick 3 is below min time 5" in str(life.over(0))


def test_a_gap_is_found_by_the_relay() -> None:
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by={1: 0, 2: 0}) as life:
        _, first, _, second = two(life)
        second.send_flush(Flush.of(2, 3))
        for client in (first, second):
            with pytest.raises(LifeEnded, match="worker 2 sent flush 3 where flush 1 was expected"):
                hear_to_the_end(client)


def test_a_process_of_another_life_is_refused_by_the_relay() -> None:
    with RelayedLife(Graph({1: []}), {7: 0}, relays=1, by={1: 0}) as life:
        client = TrackerClient(life.addresses[0], secret=SECRET, incarnation=4, local=LocalTracker(1, 4))
        with pytest.raises(Refused, match="this tracker serves 3"):
            client.connect()
        assert life.faults == []


def test_a_relay_without_a_window_does_not_spin_while_the_tracker_is_slow() -> None:
    asked = 0

    class Slow:
        over: asyncio.Future[None]

        @property
        def slow(self) -> bool:
            nonlocal asked
            asked += 1
            return True

    async def run() -> None:
        server = RelayServer("127.0.0.1:1", secret=SECRET, incarnation=1, flush_s=0.0, on_fault=lambda _: None)
        line = Slow()
        line.over = asyncio.get_running_loop().create_future()
        server._line = cast(UpLine, line)
        server._sum()
        await asyncio.sleep(0.1)

    asyncio.run(run())
    assert 1 <= asked <= 60


def test_workers_of_a_relay_hear_what_each_has_named() -> None:
    """The relay names to the tracker what all of them have named together."""
    with RelayedLife(Graph({1: [], 2: [1], 3: [1], 4: [1]}), {7: 0}, relays=1, by={1: 0, 2: 0}) as life:
        one, of_one, other, of_other = two(life)
        of_one.subscribe((2,), global_min=False)
        of_other.subscribe((3,), global_min=False)
        heard: dict[int, list[Notice]] = {1: [], 2: []}

        def hear(done: Callable[[], bool]) -> None:
            until = time.monotonic() + HANGS_S
            while not done():
                assert time.monotonic() < until, heard
                for local, client in ((one, of_one), (other, of_other)):
                    for notice in client.receive(0.01):
                        local.hear(notice)
                        heard[local.worker] += [notice] if notice.after else []

        one.heartbeat(7, 5)
        of_one.flush()
        hear(lambda: one.global_min == other.global_min == 5)
        heard[1].clear()
        heard[2].clear()
        values = [one.new_value() for _ in range(2)]
        for segment, value in zip((3, 4), values, strict=True):
            one.fold(segment, [6], value)
        one.heartbeat(7, 9)
        of_one.flush()
        hear(lambda: (one.min_time(2), other.min_time(3)) == (9, 6))
        assert one.min_time(3) < 9
        one.fold(3, [6], values[0])
        of_one.flush()
        hear(lambda: other.min_time(3) == 9)
        of_one.subscribe((2, 3), global_min=False)
        hear(lambda: one.min_time(3) == 9)
        one.fold(4, [6], values[1])
        of_one.flush()
        hear(lambda: one.global_min == other.global_min == 9)
        assert all(notice.min_times.keys() <= {2} for notice in heard[1][:-1])
        assert all(notice.min_times.keys() <= {3} for notice in heard[2])
        assert life.server.connected == (2, 1)
        assert life.faults == []
