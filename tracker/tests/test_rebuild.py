"""R10: a tracker process that died is rebuilt from absolute sums, whenever it died, and announces nothing too early."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide_tracker import (
    Floor,
    Flush,
    FlushGap,
    Graph,
    LocalTracker,
    Notice,
    ProtocolError,
    StillRebuilding,
    Tracker,
    UnknownWorker,
)

GRAPH = Graph({1: [], 2: [1]})
CAPACITY = 64


def rebuilding(workers: list[int], fronts: dict[int, int] | None = None, era: int = 2) -> Tracker:
    return Tracker.rebuilding(
        GRAPH, {0: 0} if fronts is None else fronts, workers=workers, start=0, capacity_ticks=CAPACITY, era=era
    )


def flushed(local: LocalTracker) -> Flush:
    flush = local.flush()
    assert flush is not None
    return flush


def test_nothing_is_announced_before_all_have_reported() -> None:
    sender, receiver = LocalTracker(1, 1), LocalTracker(2, 1)
    sender.fold(1, [3], 77)
    sender.heartbeat(0, 9)
    flushed(sender)
    receiver.fold(1, [3], 77)
    flushed(receiver)
    tracker = rebuilding([1, 2])
    assert tracker.receive(receiver.absolute()) == []
    assert (tracker.missing, tracker.global_min, tracker.applied(2)) == ((1,), 0, 1)
    with pytest.raises(StillRebuilding, match="waits for workers 1"):
        tracker.whole_notice()
    with pytest.raises(StillRebuilding):
        tracker.open_front(3, 0)
    assert tracker.receive(sender.absolute()) == [Notice(2, 1, 0, {1: 9, 2: 9}, 9)]
    assert (tracker.missing, tracker.applied(1)) == ((), 1)


def test_sums_of_which_some_have_dropped_their_part_are_left_out() -> None:
    """Worker 1 has heard of min time 5 and dropped its half; worker 2 has not, and still reports its own."""
    sender, receiver = LocalTracker(1, 1), LocalTracker(2, 1)
    sender.fold(1, [3], 77)
    sender.heartbeat(0, 5)
    flushed(sender)
    receiver.fold(1, [3], 77)
    flushed(receiver)
    sender.hear(Notice(1, 1, 0, {1: 5}, 0))
    assert (sender.absolute().ticks.size, receiver.absolute().ticks.size) == (0, 1)
    tracker = rebuilding([1, 2])
    tracker.receive(receiver.absolute())
    assert tracker.receive(sender.absolute())[0].min_times == {1: 5, 2: 5}


def test_flushes_go_on_where_the_report_ended() -> None:
    one, two = LocalTracker(1, 1), LocalTracker(2, 1)
    one.heartbeat(0, 5)
    first = flushed(one)
    tracker = rebuilding([1, 2])
    tracker.receive(one.absolute())
    one.fold(2, [7], 5)
    one.heartbeat(0, 8)
    tracker.receive(first)  # Sent again by a client that does not know: it is part of the report.
    tracker.receive(flushed(one))
    with pytest.raises(FlushGap):
        tracker.receive(Flush.of(1, 4))
    with pytest.raises(FlushGap):
        tracker.receive(Flush.of(2, 1))
    [notice] = tracker.receive(two.absolute())
    assert notice.min_times == {1: 8, 2: 7}
    assert tracker.receive(Flush.of(1, 3, heartbeats=[(0, 9)])) == [Notice(2, 2, 1, {1: 9}, 7)]


def test_a_second_report_changes_nothing() -> None:
    one = LocalTracker(1, 1)
    one.fold(1, [3], 5)
    flushed(one)
    tracker = rebuilding([1, 2])
    tracker.receive(one.absolute())
    tracker.receive(one.absolute())
    tracker.receive(LocalTracker(2, 1).absolute())
    assert str(tracker.holder()) == "front 0 may still label at tick 0"
    tracker.receive(Flush.of(1, 2, heartbeats=[(0, 9)]))
    assert str(tracker.holder()) == "segment 1 has an open ack at tick 3"
    with pytest.raises(ProtocolError):
        tracker.receive(one.absolute())


def test_floors_are_announced_again() -> None:
    """Some subscriber may have missed the notice that carried them."""
    one = LocalTracker(1, 1)
    one.floor(Floor(0, 4, 9))
    one.heartbeat(0, 9)
    flushed(one)
    assert rebuilding([1]).receive(one.absolute())[0].floors == (Floor(0, 4, 9),)


def test_a_worker_that_the_register_does_not_name_is_refused() -> None:
    tracker = rebuilding([1, 2])
    with pytest.raises(UnknownWorker, match=r"from workers 1, 2; worker 3 is none"):
        tracker.receive(LocalTracker(3, 1).absolute())
    with pytest.raises(UnknownWorker):
        tracker.receive(Flush.of(3, 1))


def test_a_register_without_workers_needs_no_report() -> None:
    assert rebuilding([]).missing == ()


def test_a_closed_front_keeps_its_last_heartbeat() -> None:
    one = LocalTracker(1, 1)
    one.heartbeat(0, 9)
    flushed(one)
    tracker = Tracker.rebuilding(GRAPH, {0: 0}, workers=[1], start=0, capacity_ticks=CAPACITY, era=2, closed=[0])
    assert tracker.receive(one.absolute())[0].global_min == 9


def test_of_several_closed_fronts_the_largest_last_heartbeat_counts() -> None:
    one = LocalTracker(1, 1)
    one.heartbeat(0, 9)
    one.heartbeat(1, 4)
    flushed(one)
    tracker = Tracker.rebuilding(
        GRAPH, {0: 0, 1: 0}, workers=[1], start=0, capacity_ticks=CAPACITY, era=2, closed=[0, 1]
    )
    assert tracker.receive(one.absolute())[0].global_min == 9


# -- random executions, cut anywhere -----------------------------------------------------------------------------------


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
        self.tracker = rebuilding([0, 1, 2, 3, 4], era=era)
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
