"""The tracker's process: killed whenever, nothing that is in flight is passed (R10)."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

import pytest
from tracker_life import INCARNATION, LIMIT_S, TrackerLife, Worker, lives, wait

from lowtide.process import greeting
from lowtide.process.doors import DoorKind
from lowtide_tracker import ConnectionLost, LocalTracker


def min_times(worker: Worker) -> dict[int, int]:
    return dict(worker.local.min_times.items())


def test_min_time_passes_nothing_in_flight_when_the_process_is_killed() -> None:
    """A frame is on its way to worker 2, which holds tick 4 for later."""
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        before = one.local.new_value()
        one.local.fold(1, [4], before)
        two.local.hold(2, 4)
        two.local.fold(1, [4], before)
        frame = one.local.new_value()
        one.local.fold(1, [6], frame)
        one.local.heartbeat(0, 9)
        one.hears(two, done=lambda: min_times(two) == {1: 6, 2: 4})
        pid = life.kill()
        one.hears(two, done=lambda: one.local.min_times.era == two.local.min_times.era == 2)
        assert (min_times(one), min_times(two)) == ({1: 6, 2: 4}, {1: 6, 2: 4})
        report = life.reported(lambda report: report.era == 2 and not report.missing)
        assert report.holder == "segment 2 has an open ack at tick 4"
        assert (report.pid, report.workers, report.held and report.held.segment) == (life.process.pid, 2, 2)
        assert {segment: (held.segment, held.tick) for segment, held in report.holders.items()} == {
            1: (1, 6),
            2: (2, 4),
        }
        assert not lives(pid)
        two.local.fold(1, [6], frame)
        two.local.release(2, 4)
        one.hears(two, done=lambda: min_times(one) == {1: 9, 2: 9})
        assert (life.restarts, life.faults) == ([(2, "was killed by SIGKILL")], [])


@dataclass
class Traffic:
    """Frames of one front from worker 1 to worker 2, at random ticks and times."""

    one: Worker
    two: Worker
    rng: random.Random
    tick: int = 0
    flying: list[tuple[int, int]] = field(default_factory=list)

    def step(self) -> None:
        if self.rng.random() < 0.5:
            self.tick += self.rng.randrange(2)
            value = self.one.local.new_value()
            self.one.local.fold(1, [self.tick], value)
            self.one.local.heartbeat(0, self.tick)
            self.flying.append((self.tick, value))
        elif self.flying:
            tick, value = self.flying.pop(self.rng.randrange(len(self.flying)))
            self.two.local.fold(1, [tick], value)
        for worker in (self.one, self.two):
            if self.rng.random() < 0.5:
                worker.turn()
        self.check()

    def check(self) -> None:
        for worker in (self.one, self.two):
            assert all(worker.local.min_time(1) <= tick for tick, _ in self.flying)

    def end(self) -> None:
        while self.flying:
            tick, value = self.flying.pop()
            self.two.local.fold(1, [tick], value)
        self.one.local.heartbeat(0, self.tick + 1)
        self.one.hears(self.two, done=lambda: min_times(self.two) == {1: self.tick + 1, 2: self.tick + 1})


@pytest.mark.parametrize(("seed", "kind"), list(enumerate(DoorKind)))
def test_a_process_killed_again_and_again_loses_and_doubles_nothing(seed: int, kind: DoorKind) -> None:
    with TrackerLife(kind=kind) as life:
        traffic = Traffic(Worker(life, 1), Worker(life, 2), random.Random(seed))
        for era in range(2, 5):
            for _ in range(300):
                traffic.step()
            life.kill()
            until = time.monotonic() + LIMIT_S
            while traffic.two.local.min_times.era < era:
                assert time.monotonic() < until
                traffic.step()
                time.sleep(0.002)
        traffic.end()
        assert [era for era, _ in life.restarts] == [2, 3, 4]
        assert life.faults == []


def test_nothing_is_announced_before_all_have_reported_be_it_one_that_never_flushed() -> None:
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        one.local.heartbeat(0, 5)
        one.hears(done=lambda: min_times(one) == {1: 5, 2: 5})
        life.kill()
        until = time.monotonic() + 1.0
        one.hears(done=lambda: life.process.report is not None and life.process.report.missing == (2,))
        one.local.heartbeat(0, 7)
        while time.monotonic() < until:
            one.turn()
        assert one.local.min_times.era == 1
        report = life.reported(lambda report: report.era == 2)
        assert "waits for workers 2" in report.holder
        two.hears(one, done=lambda: min_times(two) == {1: 7, 2: 7})


def test_a_worker_that_is_let_in_while_the_tracker_is_rebuilt_waits() -> None:
    """The service was asked before; what worker 3 flushes is complete all the same."""
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        one.local.heartbeat(0, 5)
        one.hears(two, done=lambda: min_times(two) == {1: 5, 2: 5})
        life.kill()
        one.hears(done=lambda: life.process.report is not None and life.process.report.missing == (2,))
        three = Worker(life, 3)
        cause, frame = one.local.new_value(), three.local.new_value()
        one.local.fold(1, [6], cause)
        one.local.heartbeat(0, 9)
        three.local.fold(2, [6], frame)
        three.local.fold(1, [6], cause)
        for _ in range(100):
            three.turn()
        assert life.faults == []
        two.hears(one, three, done=lambda: min_times(three) == {1: 9, 2: 6})
        two.local.fold(2, [6], frame)
        two.hears(one, three, done=lambda: min_times(three) == {1: 9, 2: 9})
        assert life.faults == []


def test_fronts_that_were_registered_meanwhile_hold_min_time() -> None:
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        life.fronts[5] = life.client().open_front(5, 3)
        one.local.heartbeat(0, 9)
        one.hears(two, done=lambda: min_times(one) == {1: 3, 2: 3})
        life.kill()
        one.hears(two, done=lambda: one.local.min_times.era == 2)
        assert min_times(one) == {1: 3, 2: 3}
        two.local.heartbeat(5, 9)
        one.hears(two, done=lambda: min_times(one) == {1: 9, 2: 9})
        assert life.faults == []


def test_a_front_that_was_opened_and_not_registered_is_opened_again() -> None:
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        opener = life.client()
        assert opener.open_front(5, 3) == 3
        life.kill()
        one.local.heartbeat(0, 9)
        one.hears(two, done=lambda: min_times(one) == {1: 9, 2: 9})
        with pytest.raises(ConnectionLost):
            wait(lambda: opener.receive(LIMIT_S) and False)
        opener.connect()
        life.fronts[5] = opener.open_front(5, 3)
        assert life.fronts == {0: 0, 5: 9}
        two.local.heartbeat(5, 12)
        one.local.heartbeat(0, 11)
        one.hears(two, done=lambda: min_times(two) == {1: 11, 2: 11})
        assert life.faults == []


def test_who_connects_while_no_process_runs_waits_and_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "GREETING_LIMIT_S", LIMIT_S)  # A busy machine starts a process in seconds.
    restart = threading.Event()

    def workers() -> list[int]:
        restart.wait(LIMIT_S)
        return [1, 2]

    with TrackerLife(workers=workers) as life:
        one, two = Worker(life, 1), Worker(life, 2)
        address = life.address
        life.kill()
        new = LocalTracker(7, INCARNATION)
        waiting = life.line(new, connect=False)
        wait(lambda: one.line.receive() == [] and one.line.fileno() < 0)
        for _ in range(50):
            assert not waiting.mend(time.monotonic())
            time.sleep(0.002)
        attempt = waiting._greetings[0].attempt
        assert attempt is not None
        restart.set()
        wait(lambda: waiting.mend(time.monotonic()))
        assert waiting.fileno() == attempt.fileno(), "the connection that waited is the one that is served"
        one.local.heartbeat(0, 5)
        one.hears(two, done=lambda: min_times(two) == {1: 5, 2: 5})
        assert (life.address, life.faults) == (address, [])


def test_reports_say_what_holds_min_time() -> None:
    with TrackerLife() as life:
        one = Worker(life, 1)
        one.local.fold(1, [3], 5)
        one.local.heartbeat(0, 7)
        one.turn()
        report = life.reported(lambda report: report.traffic.flushes == 1)
        assert (report.era, report.min_times, report.global_min) == (1, {1: 3, 2: 3}, 3)
        assert report.holder == "segment 1 has an open ack at tick 3"
