"""A tracker in shards over real sockets: the answers of one tracker, whatever is killed or cut off (R9, R10)."""

import random
import time

import pytest
from hanging import HANGS_S
from life_job import DUES, FRONTS, GRAPH, Job
from sharded_life import INCARNATION, ShardedLife, wait

from lowtide_tracker import Floor, Flush, Graph, LocalTracker, ProtocolError
from lowtide_tracker.messages import Join, Report
from lowtide_tracker.shards.sharded_client import ShardedClient
from lowtide_tracker.wire import encode


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(2))
def test_the_answers_are_one_trackers_whatever_is_killed(shards: int, seed: int) -> None:
    rng = random.Random(1000 * shards + seed)
    with ShardedLife(Graph(GRAPH), dict.fromkeys(FRONTS, 0), shards=shards, dues=DUES) as life:
        job = Job(life, rng)
        for _ in range(3):
            for _ in range(150):
                job.step()
            what = rng.choice(["shard", "merge", "both", "cut"])
            if what in ("shard", "both"):
                life.kill_shard(rng.randrange(shards))
            if what in ("merge", "both"):
                life.kill_merge()
            for _ in range(3 if what == "cut" else 0):
                job.cut()
        job.end()
        heard = life.listener()
        reported: list[Floor] = []
        until = time.monotonic() + HANGS_S
        while len(reported) < job.offset:
            assert time.monotonic() < until
            reported += [floor for notice in heard.receive(0.1) for floor in notice.floors]
        assert len(reported) == job.offset


def two(life: ShardedLife) -> tuple[LocalTracker, ShardedClient, LocalTracker, ShardedClient]:
    one, other = (LocalTracker(worker, INCARNATION, start=0) for worker in (1, 2))
    life.workers = [1, 2]
    return one, life.worker(one), other, life.worker(other)


def test_nothing_moves_before_a_new_shard_has_heard_of_all_workers() -> None:
    with ShardedLife(Graph({1: []}), {7: 0}, shards=2) as life:
        one, first, other, second = two(life)
        value = one.new_value()
        one.fold(1, [4], value)
        one.fold(1, [5], value)
        one.heartbeat(7, 9)
        wait(lambda: one.min_time(1) == 4 == other.min_time(1), first, second)
        life.kill_shard(0)
        other.fold(1, [4], value)
        wait(lambda: life.missing(0) == (2,), first)
        assert one.min_time(1) == 4
        wait(lambda: one.min_time(1) == 5, first, second)
        life.kill_shard(1)
        other.fold(1, [5], value)
        wait(lambda: one.min_time(1) == 9 == other.min_time(1), first, second)
        assert life.faults == []


def test_a_worker_that_comes_while_a_shard_is_rebuilt_waits() -> None:
    with ShardedLife(Graph({1: []}), {7: 0}, shards=2) as life:
        one, first, _, second = two(life)
        one.heartbeat(7, 5)
        wait(lambda: one.min_time(1) == 5, first, second)
        life.kill_shard(1)
        third = LocalTracker(3, INCARNATION, start=0)
        client = life.worker(third)
        cause = one.new_value()
        one.fold(1, [7], cause)
        one.heartbeat(7, 9)
        third.fold(1, [7], cause)
        wait(lambda: life.missing(1) == (2,), first, client)
        assert third.min_time(1) == 5
        wait(lambda: third.min_time(1) == 9, first, client, second)
        assert life.faults == []


def test_fronts_open_and_close_over_deaths() -> None:
    with ShardedLife(Graph({1: []}), {7: 0}, shards=3) as life:
        one, first, other, second = two(life)
        assert second.open_front(8, 3) == 3
        life.fronts[8] = 3
        one.heartbeat(7, 9)
        wait(lambda: one.min_time(1) == 3, first, second)
        life.kill_shard(1)
        other.heartbeat(8, 6)
        wait(lambda: one.min_time(1) == 6, first, second)
        life.kill_merge()
        life.kill_shard(2)
        wait(lambda: other.min_times.era == 2, first, second)
        assert one.min_time(1) == 6
        second.close_front(8)
        wait(lambda: one.min_time(1) == 9, first, second)
        assert life.faults == []


def test_a_front_whose_opening_a_merge_took_with_it_is_opened_again() -> None:
    with ShardedLife(Graph({1: []}), {7: 0}, shards=2) as life:
        one, first, other, second = two(life)
        assert second.open_front(8, 3) == 3
        life.kill_merge()
        one.heartbeat(7, 9)
        wait(lambda: one.min_times.era == 2, first, second)
        assert one.min_time(1) == 3, "the shards have not forgotten it"
        assert second.open_front(8, 3) == 3
        other.heartbeat(8, 12)
        wait(lambda: one.min_time(1) == 9, first, second)
        assert life.faults == []


def test_what_a_worker_does_wrong_ends_the_life_and_names_it() -> None:
    with ShardedLife(Graph({1: []}), {7: 0}, shards=2) as life:
        one, first, _, second = two(life)
        one.heartbeat(7, 5)
        wait(lambda: one.min_time(1) == 5, first, second)
        wait(lambda: all(core is not None and core._min == [5] for core in map(life.core, range(2))), first, second)
        second.shards[1].send_flush(Flush.of(2, 1, [(1, 3, 9)]))
        wait(lambda: life.faults)
        assert "tick 3 is below min time 5" in str(life.faults[0])


def test_a_shard_that_reports_for_another_or_of_another_number_ends_the_life() -> None:
    with ShardedLife(Graph({1: []}), {7: 0}, shards=2) as life:
        stranger = life.listener()
        stranger._send(encode(Join(2, 2, True)))
        with pytest.raises(ProtocolError, match="shard 2 of 2 cannot join a tracker of 2 shards"):
            wait(lambda: stranger.receive(0.1) and False)
        assert life.faults == []
        liar = life.listener()
        liar._send(encode(Join(1, 2, False)) + encode(Report(0, True, (), 0, ())))
        wait(lambda: life.faults)
        assert "a report of shard 0 came from shard 1" in str(life.faults[0])
