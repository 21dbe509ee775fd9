"""A tracker in shards, as processes: killed, stopped or cut off, nothing is passed and nothing is lost (R9)."""

from __future__ import annotations

import math
import os
import random
import signal
import socket
import time

import pytest
from sharded_tracker_life import MERGE, ShardedTrackerLife
from tracker_life import LIMIT_S, Worker, lives, wait

from lowtide.errors import LifeEnded
from lowtide.process.doors import DoorKind
from lowtide.service.tracker import process as tracker_process
from lowtide.service.tracker.sharded import SILENCE_S


def min_times(worker: Worker) -> dict[int, int]:
    return dict(worker.local.min_times.items())


class Traffic:
    """Frames of one front from worker 1 to worker 2, which passes some on to worker 1; random ticks and times."""

    def __init__(self, life: ShardedTrackerLife, seed: int) -> None:
        self.one, self.two = Worker(life, 1), Worker(life, 2)
        self.rng = random.Random(seed)
        self.tick = 0
        self.flying: list[tuple[int, int, int]] = []

    def step(self) -> None:
        one, two, rng = self.one.local, self.two.local, self.rng
        if rng.random() < 0.5:
            self.tick += rng.randrange(3)
            value = one.new_value()
            one.fold(1, [self.tick], value)
            one.heartbeat(0, self.tick)
            self.flying.append((1, self.tick, value))
        elif self.flying:
            segment, tick, value = self.flying.pop(rng.randrange(len(self.flying)))
            if segment == 1:
                caused = two.new_value()
                two.fold(2, [tick], caused)
                self.flying.append((2, tick, caused))
            (two if segment == 1 else one).fold(segment, [tick], value)
        for worker in (self.one, self.two):
            if rng.random() < 0.5:
                worker.turn()
        for worker in (self.one, self.two):
            assert all(worker.local.min_time(segment) <= tick for segment, tick, _ in self.flying)

    def goes_on_until(self, done: object) -> None:
        until = time.monotonic() + 3 * LIMIT_S
        assert callable(done)
        while not done():
            assert time.monotonic() < until
            self.step()
            time.sleep(0.002)

    def end(self) -> None:
        until = time.monotonic() + LIMIT_S
        while self.flying:
            assert time.monotonic() < until
            segment, tick, value = self.flying.pop()
            (self.two if segment == 1 else self.one).local.fold(segment, [tick], value)
        self.one.local.heartbeat(0, self.tick + 1)
        last = {1: self.tick + 1, 2: self.tick + 1}
        self.one.hears(self.two, done=lambda: min_times(self.one) == min_times(self.two) == last)


@pytest.mark.parametrize("kind", DoorKind)
def test_processes_killed_again_and_again_lose_and_double_nothing(kind: DoorKind) -> None:
    """Their successors take the same doors, and bring certificates of their own."""
    with ShardedTrackerLife(2, kind=kind) as life:
        traffic = Traffic(life, 1)
        for which in (1, MERGE, 0):
            for _ in range(200):
                traffic.step()
            pid = life.kill_one(which)
            traffic.goes_on_until(life.whole)
            assert not lives(pid)
        traffic.end()
        assert [(shard, era) for shard, era, _ in life.shard_restarts] == [(1, 2), (0, 2)]
        assert life.restarts == [(2, "was killed by SIGKILL")]
        assert life.faults == []


def test_a_shard_that_is_stopped_is_named_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with ShardedTrackerLife(3) as life:
        traffic = Traffic(life, 2)
        traffic.goes_on_until(lambda: traffic.tick > 20 and life.whole())
        life.signal(2, signal.SIGSTOP)
        seen: set[str] = set()

        def look() -> None:
            """With a limit between the silence of the stopped one and that of all others, however slow they are."""
            silences = [each.silent_s for each in life.process._processes]
            stopped, longest = silences.pop(2), max(*silences, life.process._merge.silent_s)
            between = (stopped + longest) / 2 if stopped > longest + SILENCE_S else math.inf
            monkeypatch.setattr(tracker_process, "SILENT_LIMIT_S", between)
            seen.update(trouble.rpartition(" for ")[0] for trouble in life.process.troubles)
            life.process.end_if_silent()

        def replaced() -> bool:
            if not life.shard_restarts:
                life.do_soon(look)
            return bool(life.shard_restarts) and life.whole()

        traffic.goes_on_until(replaced)
        traffic.end()
        assert "shard 2 of the tracker has been silent" in seen
        assert life.shard_restarts == [(2, 2, "was killed by SIGKILL")]
        assert life.faults == []


def test_workers_that_are_cut_off_from_all_shards_go_on_with_the_same_processes() -> None:
    with ShardedTrackerLife(2) as life:
        traffic = Traffic(life, 3)
        traffic.goes_on_until(lambda: traffic.tick > 20 and life.whole())
        pids = life.process.pids
        for worker in (traffic.one, traffic.two):
            for descriptor in worker.line.descriptors():
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
        ends = traffic.tick + 20
        traffic.goes_on_until(lambda: traffic.tick > ends and traffic.one.line.fileno() >= 0)
        traffic.end()
        assert life.process.pids == pids
        assert (life.shard_restarts, life.restarts, life.faults) == ([], [], [])


def test_what_holds_min_time_is_named_with_its_shard_asked() -> None:
    with ShardedTrackerLife(2) as life:
        one = Worker(life, 1)
        one.local.heartbeat(0, 7)
        one.hears(done=lambda: min_times(one) == {1: 7, 2: 7})
        report = life.reported(lambda report: report.held is not None and report.held.tick == 7)
        assert report.holder == "front 0 may still label at tick 7"
        one.local.fold(1, [8], 5)
        one.local.heartbeat(0, 11)
        one.turn()
        report = life.reported(lambda report: report.held is not None and not report.held.at_front)
        assert report.holder == "segment 1 has an open ack at tick 8"
        assert (report.global_min, report.era, report.missing) == (8, 1, ())
        report = life.reported(lambda report: len(report.holders) == 2)
        assert report.holders == {1: report.held, 2: report.held}, "what holds the first holds the second too"
        assert [(state.shard, state.era, state.trouble) for state in report.shards] == [(0, 1, ""), (1, 1, "")]
        assert life.process.troubles == []


def test_a_snapshot_is_asked_for_by_the_merge_and_a_new_shard_forgets_no_request() -> None:
    with ShardedTrackerLife(2) as life:
        one, two = Worker(life, 1), Worker(life, 2)
        one.local.heartbeat(0, 7)
        one.hears(two, done=lambda: min_times(two) == {1: 7, 2: 7})
        assert life.do(life.process.request(1)) == 7
        life.kill_one(0)
        one.hears(two, done=lambda: any(notice.request is not None for notice in two.heard))
        asked = [notice.request for notice in two.heard if notice.request is not None]
        assert [(request.number, request.tick) for request in asked] == [(1, 7)]
        assert life.faults == []


def test_a_fault_of_a_shard_ends_all_and_is_reported_once() -> None:
    with ShardedTrackerLife(2) as life:
        one, two = Worker(life, 1), Worker(life, 2)
        one.local.fold(1, [-1], 77)
        with pytest.raises(LifeEnded, match="an ack at tick -1 is below min time 0"):
            one.hears(two, done=lambda: False)
        wait(lambda: life.faults)
        assert len(life.faults) == 1
        assert "an ack at tick -1 is below min time 0" in life.faults[0].what
        assert life.shard_restarts == []
