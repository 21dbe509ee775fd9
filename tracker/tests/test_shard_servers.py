"""A tracker in shards over real sockets: the answers of one tracker, whatever is killed or cut off (R9, R10)."""

import os
import random
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hanging import HANGS_S
from sharded_life import CAPACITY, INCARNATION, ShardedLife, mend, wait

from lowtide_tracker import ConnectionLost, Floor, Flush, Graph, LocalTracker, ProtocolError, Tracker
from lowtide_tracker.messages import Join, Report
from lowtide_tracker.shards.sharded_client import ShardedClient
from lowtide_tracker.wire import encode

GRAPH = {1: [], 2: [1], 3: [2]}
DUES = {3: [2]}
FRONTS = (7, 8)


def min_times(local: LocalTracker) -> dict[int, int]:
    return dict(local.min_times.items())


@dataclass
class Frame:
    """One on its way."""

    segment: int
    tick: int
    value: int
    to: int


@dataclass
class Job:
    """Two fronts, a level that passes on now or later, one that has something due, and a sink; and one tracker.

    Min times that anybody hears are never above the one tracker's, which gets each flush as soon as it is made.
    """

    life: ShardedLife
    rng: random.Random
    labels: dict[int, int] = field(default_factory=lambda: dict.fromkeys(FRONTS, 0))
    frames: list[Frame] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    due: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        self.tracker = Tracker(Graph(GRAPH), dict.fromkeys(FRONTS, 0), start=0, capacity_ticks=CAPACITY, dues=DUES)
        self.locals = [LocalTracker(worker, INCARNATION, start=0) for worker in range(4)]
        self.life.workers = [local.worker for local in self.locals]
        self.clients = [self.life.worker(local) for local in self.locals]
        self.locals[2].due(3, None, owner=2)

    def send(self, sender: int, segment: int, tick: int, to: int) -> None:
        value = self.locals[sender].new_value()
        self.locals[sender].fold(segment, [tick], value)
        self.frames.append(Frame(segment, tick, value, to))

    def front_goes_on(self) -> None:
        front = self.rng.choice(FRONTS)
        local = self.locals[FRONTS.index(front)]
        self.labels[front] += self.rng.choice([0, 1, 1, 3, 17])
        tick = self.labels[front]
        if self.rng.random() < 0.7:
            self.send(FRONTS.index(front), 1, tick, 2)
        if self.rng.random() < 0.3:
            self.offset += 1
            local.floor(Floor(front, self.offset, tick))
        local.heartbeat(front, tick)

    def frame_arrives(self) -> None:
        if not self.frames:
            return
        frame = self.frames.pop(self.rng.randrange(len(self.frames)))
        local = self.locals[frame.to]
        if frame.segment == 1:
            what = self.rng.random()
            if what < 0.4:
                self.send(2, 2, frame.tick, 2)
            elif what < 0.7 and local.hold(2, frame.tick):
                self.held.append(frame.tick)
        elif frame.segment == 2:
            if self.rng.random() < 0.5:
                self.send(2, 3, frame.tick, 3)
            else:
                self.due = frame.tick + 5 if self.due is None else min(self.due, frame.tick + 5)
                local.due(3, self.due, owner=2)
        local.fold(frame.segment, [frame.tick], frame.value)

    def what_waited_goes_on(self) -> None:
        local = self.locals[2]
        for tick in [tick for tick in self.held if tick < local.min_time(1)]:
            self.held.remove(tick)
            self.send(2, 2, tick, 2)
            local.release(2, tick)
        if self.due is not None and local.min_time(2) > self.due:
            self.send(2, 3, self.due, 3)
            self.due = None
            local.due(3, None, owner=2)

    def step(self) -> None:
        self.rng.choice([self.front_goes_on, self.frame_arrives, self.frame_arrives, self.what_waited_goes_on])()
        self.turn(self.rng.randrange(4))

    def turn(self, worker: int) -> None:
        client, local = self.clients[worker], self.locals[worker]
        with suppress(ConnectionLost):
            for notice in client.receive():
                local.hear(notice)
        if self.rng.random() < 0.2:
            mend(client)
        flush = local.flush()
        if flush is not None:
            self.tracker.receive(flush)
            with suppress(ConnectionLost):
                client.send_flush(flush)
        for segment, tick in local.min_times.items():
            assert tick <= self.tracker.min_time(segment), f"segment {segment}"

    def cut(self) -> None:
        """A shard's line to the merge breaks, or one of a worker's, as the network breaks it."""
        if self.rng.random() < 0.5:
            self.life.cut_shard(self.rng.randrange(self.life.count))
            return
        line = self.rng.choice(self.rng.choice(self.clients).lines)
        if line.connected:
            with socket.socket(fileno=os.dup(line.fileno())) as connection, suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """All arrives; then everybody has heard what one tracker says."""
        until = time.monotonic() + HANGS_S
        while self.frames or self.held or self.due is not None:
            assert time.monotonic() < until
            for worker, front in enumerate(FRONTS):
                self.labels[front] += 1
                self.locals[worker].heartbeat(front, self.labels[front])
            self.frame_arrives()
            self.what_waited_goes_on()
            for client in self.clients:
                mend(client)
            for worker in range(4):
                self.turn(worker)
        last = max(self.labels.values()) + 5
        for worker, front in enumerate(FRONTS):
            self.locals[worker].heartbeat(front, last)

        def settled() -> bool:
            for worker, client in enumerate(self.clients):
                mend(client)
                self.turn(worker)
            return all(min_times(local) == self.tracker.min_times() for local in self.locals)

        wait(settled)
        assert set(self.tracker.min_times().values()) == {last}
        wait(lambda: settled() and not any(local.unacknowledged() for local in self.locals))
        assert self.life.faults == []


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
