"""Random executions in which the tracker's process dies anywhere: min time passes nothing that is in flight (R10)."""

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide_tracker import Flush, Graph, LocalTracker, Notice, Tracker

GRAPH = Graph({1: [], 2: [1]})
CAPACITY = 64


@dataclass
class World:
    """One front in worker 0, two workers that receive in segment 1, two in segment 2; frames travel as (to, tick)."""

    rng: random.Random
    locals: list[LocalTracker] = field(default_factory=lambda: [LocalTracker(w, 1) for w in range(5)])
    tracker: Tracker = field(default_factory=lambda: Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=CAPACITY))
    frames: list[tuple[int, int, int]] = field(default_factory=list)
    """(receiver, tick, value) in flight."""
    held: list[tuple[int, int]] = field(default_factory=list)
    """(worker, tick) of holds in segment 2."""
    streams: list[list[Flush]] = field(default_factory=lambda: [[] for _ in range(5)])
    """Per worker: flushes on their way."""
    notices: list[list[Notice]] = field(default_factory=lambda: [[] for _ in range(5)])
    announced: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})
    tick: int = 0

    def send(self, sender: int, receiver: int, tick: int) -> None:
        value = self.locals[sender].new_value()
        self.locals[sender].fold(1 if receiver < 3 else 2, [tick], value)
        self.frames.append((receiver, tick, value))

    def step(self) -> None:
        rng = self.rng
        match rng.randrange(6):
            case 0 if self.tick - self.locals[0].global_min < 40:
                self.tick += rng.randrange(3)
                self.send(0, rng.choice([1, 2]), self.tick)
                self.tick += rng.randrange(2)
                self.locals[0].heartbeat(0, self.tick)
            case 1 | 2 if self.frames:
                self.receive(self.frames.pop(rng.randrange(len(self.frames))))
            case 3 if self.held:
                worker, tick = self.held.pop(rng.randrange(len(self.held)))
                self.send(worker, rng.choice([3, 4]), tick)
                self.locals[worker].release(2, tick)
            case 4:
                worker = rng.randrange(5)
                flush = self.locals[worker].flush()
                self.streams[worker] += [flush] if flush else []
            case _:
                self.exchange(rng.randrange(5))

    def receive(self, frame: tuple[int, int, int]) -> None:
        worker, tick, value = frame
        if worker < 3:
            if self.rng.random() < 0.5 and (worker, tick) not in self.held:
                self.locals[worker].hold(2, tick)
                self.held.append((worker, tick))
            for _ in range(self.rng.randrange(3)):
                self.send(worker, self.rng.choice([3, 4]), tick)
        self.locals[worker].fold(1 if worker < 3 else 2, [tick], value)

    def exchange(self, worker: int) -> None:
        """One flush of a worker arrives, and it hears one notice."""
        if self.streams[worker]:
            flush = self.streams[worker].pop(0)
            self.announce(self.tracker.receive(flush))
            self.locals[worker].applied(flush.number)
        if self.notices[worker]:
            self.locals[worker].hear(self.notices[worker].pop(0))

    def announce(self, notices: list[Notice]) -> None:
        for notice in notices:
            for segment, tick in notice.min_times.items():
                assert tick >= self.announced[segment], "min time went back"
            self.announced.update(notice.min_times)
            for queue in self.notices:
                queue.append(notice)
        self.check()

    def check(self) -> None:
        """Safety: min time passes neither a frame nor a hold."""
        self.tracker.check()
        for receiver, tick, _ in self.frames:
            assert self.announced[2] <= tick
            assert receiver > 2 or self.announced[1] <= tick
        assert all(self.announced[2] <= tick for _, tick in self.held)

    def kill_tracker(self) -> None:
        """A new process; what was on its way is lost, and workers report at different times, working on meanwhile."""
        era = self.tracker.era + 1
        self.tracker = Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=CAPACITY, era=era).rebuilt_from(range(5))
        before = dict(self.announced)
        self.streams, self.notices = [[] for _ in range(5)], [[] for _ in range(5)]
        order = self.rng.sample(range(5), 5)
        for at, worker in enumerate(order):
            report = self.locals[worker].absolute()
            self.locals[worker].applied(report.number)
            self.announce(self.tracker.receive(report))
            if at < 4:
                assert self.tracker.missing
                for _ in range(self.rng.randrange(6)):
                    self.work_on(order[: at + 1])
        assert self.announced == self.tracker.min_times()
        assert all(self.announced[segment] >= tick for segment, tick in before.items())

    def work_on(self, reported: list[int]) -> None:
        if self.frames and self.rng.random() < 0.5:
            self.receive(self.frames.pop())
        worker = self.rng.choice(reported)
        flush = self.locals[worker].flush()
        if flush:
            assert self.tracker.receive(flush) == []

    def drain(self) -> None:
        while self.frames or self.held:
            if self.held:
                worker, tick = self.held.pop()
                self.send(worker, 3, tick)
                self.locals[worker].release(2, tick)
            if self.frames:
                self.receive(self.frames.pop())
        self.locals[0].heartbeat(0, self.tick + 1)
        for worker, local in enumerate(self.locals):
            flush = local.flush()
            self.streams[worker] += [flush] if flush else []
            while self.streams[worker]:
                self.exchange(worker)
        assert self.announced == {1: self.tick + 1, 2: self.tick + 1}


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 60), max_size=3))
def test_min_time_never_passes_what_is_in_flight_wherever_the_tracker_dies(
    rng: random.Random, lives: list[int]
) -> None:
    world = World(rng)
    for steps in [*lives, 40]:
        for _ in range(steps):
            world.step()
        if steps != 40:
            world.kill_tracker()
    world.drain()
