"""The tracker alone: fronts and workers on a random graph pass frames on that carry nothing but ticks."""

from __future__ import annotations

from typing import ClassVar

from lowtide_tracker import Floor, FlushGap, LocalTracker, Notice

from .clocks import Clocks
from .fleet import Fleet, Frame, Front
from .model import Model
from .tracking import Line, Tracking
from .verdict import Violation
from .world import Step, Trace, World

MAX_DRAIN_ROUNDS = 60
LAST_TICK = 1_000_000


class ProtocolWorld(World):
    """Random segments, chains, diamonds and cycles among them, with receivers and clocks, and 1 to 3 fronts."""

    name: ClassVar[str] = "protocol"

    def __init__(self, seed: int, trace: Trace | None = None, *, loss: bool | None = None) -> None:
        super().__init__(seed, trace)
        rng = self.rng
        segments = list(range(1, rng.randint(1, 5) + 1))
        self.inbound = {s: self._sources(s, segments) for s in segments}
        self.down = {s: [u for u in segments if s in self.inbound[u]] for s in segments}
        self.capacity = rng.choice([3, 8, 64, 300])
        self.lives = 0
        drawn = rng.random() < 0.15
        self.loss = drawn if loss is None else loss
        self.begin()

    def _sources(self, segment: int, segments: list[int]) -> list[int]:
        rng = self.rng
        earlier = [s for s in segments if s < segment]
        pool = segments if rng.random() < 0.25 else earlier
        return sorted(rng.sample(pool, min(len(pool), rng.choice([0, 1, 1, 1, 2]))))

    def begin(self) -> None:
        """A life begins; nothing is left of the one before."""
        rng = self.rng
        self.lives += 1
        self.fleet = fleet = Fleet()
        self.model = Model(self.inbound)
        start = rng.choice([0, 0, 5, 1_000])
        register = {front: start + rng.choice([-5, 0, 0, 3]) for front in range(rng.randint(1, 3))}
        lines = [self._line(worker, start) for worker in range(rng.randint(1, 4))]
        self.at = {s: [line for line in lines if line is lines[0] or rng.random() < 0.5] for s in self.inbound}
        self.clocks = Clocks(rng, self.model, start, self.capacity)
        self.clocks.draw(self.at, self.down)
        for clock in self.clocks.clocks:
            if clock.line.named is not None:
                # What it has due holds the global min time, so it would wait for itself for ever.
                clock.line.named |= {clock.waits}
        dues = self.clocks.register()
        self.tracking = self.tracked(register, start, dues)
        self.tracking.lines += lines
        for front, floor in register.items():
            line = self.tracking.lines[0]
            if rng.random() < 0.7:
                line = self._line(len(self.tracking.lines), start)
                self.tracking.lines.append(line)
            self._front(Front(front, line, self.tracking.graph.sources, max(start, floor)))
        # One that does not count in any minimum, as that of a feedback topic: it never moves.
        self.tracking.open(90, start, ())
        assert fleet.fronts

    def tracked(self, register: dict[int, int], start: int, dues: dict[int, list[int]]) -> Tracking:
        """The life's tracker."""
        return Tracking(self.rng, self.inbound, register, start=start, capacity=self.capacity, dues=dues)

    def _line(self, worker: int, start: int) -> Line:
        most = self.rng.choice([2, 10_000])
        local = LocalTracker(worker, incarnation=self.lives, start=start, max_unacknowledged=most)
        line = Line(local, local.flush, lambda notice: self.heard(local, notice))
        if self.names:
            chance, segments = self.naming, sorted(self.inbound)
            line.named = frozenset(chance.sample(segments, chance.randint(0, len(segments))))
            line.leads = chance.random() < 0.5
        return line

    def _front(self, front: Front) -> None:
        self.fleet.fronts.append(front)
        self.model.label(front.number, front.label, front.feeds)

    def heard(self, local: LocalTracker, notice: Notice) -> None:
        """A worker hears a notice, perhaps one it has heard before."""
        local.hear(notice)
        for segment, tick in notice.min_times.items():
            if local.min_time(segment) < tick:
                raise Violation("error", f"worker {local.worker} forgot that segment {segment} is at {tick}")

    # -- steps -----------------------------------------------------------------------------------------------------

    def chances(self) -> list[tuple[int, str, Step]]:
        """The steps there are."""
        return [
            (40, "label", self.label),
            (5, "idle", self.idle),
            (50, "receive", self.receive),
            (12, "release", self.release),
            (12, "fire", self.fire),
            (2, "restore", self.restore),
            (50, "flush", self.flush),
            (50, "arrive", self.arrive),
            (40, "hear", self.hear),
            (3, "double", self.double),
            (12, "connect", self.connect),
            (1, "open", self.open),
            (1, "rare", self.rare),
        ]

    def label(self) -> bool:
        """A front labels records of some ticks, within its window, and sends them."""
        rng = self.rng
        front = rng.choice(self.fleet.fronts)
        limit = front.line.local.global_min + self.capacity
        ticks = []
        tick = front.label + rng.choice([0, 0, 1, 2, 7])
        for _ in range(rng.choice([1, 1, 2, 3])):
            if tick >= limit:
                break
            ticks.append(tick)
            tick += rng.choice([0, 1, 1, 3])
        if not ticks:
            return False
        for segment in front.feeds:
            self._send(front.line, segment, ticks, rng.choice([1, 1, 2]), life=4)
        self._promise(front, ticks[-1] + rng.choice([0, 0, 1]))
        if self.trace:
            self.say(f"front {front.number}", f"labels {ticks}, then nothing below {front.label}")
        return True

    def idle(self) -> bool:
        """A front that reads nothing takes a floor; it may lie far ahead."""
        front = self.rng.choice(self.fleet.fronts)
        if front.label >= front.line.local.global_min + self.capacity and self.rng.random() < 0.9:
            return False
        tick = front.label + self.rng.choice([1, 5, 2 * self.capacity])
        front.floors += self.rng.choice([0, 1])
        front.line.local.floor(Floor(front.number, front.floors, tick))
        self._promise(front, tick)
        if self.trace:
            self.say(f"front {front.number}", f"takes a floor: nothing below {tick}")
        return True

    def _promise(self, front: Front, tick: int) -> None:
        front.label = max(front.label, tick)
        front.line.local.heartbeat(front.number, front.label)
        self.model.label(front.number, front.label, front.feeds)

    def _send(self, line: Line, segment: int, ticks: list[int], copies: int, life: int) -> None:
        """Frames of these ticks, or some of them, to receivers of a segment."""
        rng = self.rng
        for _ in range(copies):
            part = tuple(sorted({*rng.sample(ticks, rng.randint(1, len(ticks)))})) if len(ticks) > 1 else tuple(ticks)
            value = line.local.new_value()
            line.local.fold(segment, part, value)
            target = rng.choice(self.at[segment])
            self.fleet.frames.append(Frame(segment, target.local.worker, part, value, life))
            self.model.add(segment, part)

    def receive(self) -> bool:
        """A worker takes a frame, sends on what it causes, or holds it, and acks it."""
        frames, rng = self.fleet.frames, self.rng
        if not frames:
            return False
        place = rng.randrange(len(frames))
        frames[place], frames[-1] = frames[-1], frames[place]
        frame = frames.pop()
        line = self.tracking.lines[frame.worker]
        if self.trace:
            self.say(f"worker {frame.worker}", f"takes a frame of segment {frame.segment}, ticks {list(frame.ticks)}")
        if frame.life:
            for segment in self.down[frame.segment]:
                what = rng.random()
                if what < 0.6:
                    self._send(line, segment, list(frame.ticks), rng.choice([1, 1, 2]), frame.life - 1)
                elif what < 0.8:
                    self._hold(line, segment, rng.choice(frame.ticks), frame.life - 1)
        self.clocks.take(line, frame.segment, frame.ticks)
        line.local.fold(frame.segment, frame.ticks, frame.value)
        self.model.remove(frame.segment, frame.ticks)
        return True

    def _hold(self, line: Line, segment: int, tick: int, life: int) -> None:
        if any(held[:3] == (line, segment, tick) for held in self.fleet.held):
            return
        line.local.hold(segment, tick)
        self.fleet.held.append((line, segment, tick, life))
        self.model.add(segment, (tick,))
        if self.trace:
            self.say(f"worker {line.local.worker}", f"holds tick {tick} in segment {segment}")

    def release(self) -> bool:
        """A worker emits what it was holding, and lets go."""
        held = self.fleet.held
        if not held:
            return False
        line, segment, tick, life = held.pop(self.rng.randrange(len(held)))
        self._send(line, segment, [tick], self.rng.choice([0, 1, 2]), life)
        line.local.release(segment, tick)
        self.model.remove(segment, (tick,))
        if self.trace:
            self.say(f"worker {line.local.worker}", f"lets go of tick {tick} in segment {segment}")
        return True

    def fire(self) -> bool:
        """Min time has passed what was due for a worker: it sends it, then tells what is due next."""
        ready = self.clocks.ready()
        if not ready:
            return False
        clock = self.rng.choice(ready)
        tick = self.clocks.pop(clock)
        self._send(clock.line, clock.sends, [tick], self.rng.choice([0, 1, 2]), life=2)
        self.clocks.sent(clock)
        if self.trace:
            what = f"sends what was due at {tick} into segment {clock.sends}; due are {clock.due}"
            self.say(f"worker {clock.line.local.worker}", what)
        return True

    def restore(self) -> bool:
        """A worker has its state again, and tells what is due."""
        away = [clock for clock in self.clocks.clocks if not clock.restored]
        if not away:
            return False
        clock = self.rng.choice(away)
        self.clocks.restore(clock)
        if self.trace:
            self.say(f"worker {clock.line.local.worker}", f"is restored; due in segment {clock.sends} are {clock.due}")
        return True

    def take(self, line: Line) -> None:
        """The tracker takes a flush; a gap ends the life."""
        worker = line.local.worker
        try:
            super().take(line)
        except FlushGap:
            if worker not in self.fleet.lost:
                raise
            self.begin()
            return
        if worker in self.fleet.lost:
            number = self.tracking.tracker.applied(worker)
            raise Violation("error", f"the tracker took flush {number} of worker {worker}, and one is missing")

    def double(self) -> bool:
        """A flush goes out twice, or, in some worlds, is lost without anybody's knowing."""
        line = self.unsettled()
        if line is None:
            return False
        worker, numbers = line.local.worker, [message.number for message in line.up]
        once = numbers.count(numbers[0]) == 1 and numbers[0] > self.tracking.tracker.applied(worker)
        if self.loss and once and not self.tracking.tracker.missing and not self.fleet.lost:
            line.up.popleft()
            self.fleet.lost.add(worker)
        else:
            self.tracking.double(line)
        if self.trace:
            self.say("network", f"{'loses' if self.fleet.lost else 'doubles'} a flush of worker {line.local.worker}")
        return True

    def connect(self) -> bool:
        """A worker's connection is lost and recreated; one that lost a flush has no way back."""
        lines = [line for line in self.tracking.lines if line.local.worker not in self.fleet.lost]
        lost = [line for line in lines if not line.connected]
        if not lines or not (lost or self.rng.random() < 0.1):
            return False
        line = self.rng.choice(lost or lines)
        self.tracking.connect(line)
        if self.trace:
            self.say(f"worker {line.local.worker}", "connects again")
        return True

    def open(self) -> bool:
        """A front opens late."""
        rng, tracking = self.rng, self.tracking
        if len(self.fleet.fronts) > 4 or tracking.tracker.missing:
            return False
        number, line = len(tracking.register), rng.choice(tracking.lines)
        feeds = tuple(rng.sample(sorted(self.inbound), 1)) if rng.random() < 0.3 else None
        tick = tracking.open(number, rng.choice([0, self.fleet.fronts[0].label]), feeds)
        self._front(Front(number, line, tracking.graph.sources if feeds is None else feeds, tick))
        if self.trace:
            self.say(f"front {number}", f"opens at tick {tick}")
        return True

    def rare(self) -> bool:
        """The tracker's process dies, or a front is closed."""
        rng, tracking = self.rng, self.tracking
        if rng.random() < 0.5 and not self.fleet.lost:
            tracking.crash()
            if self.trace:
                self.say("tracker", "died; another one waits for all workers")
            return True
        return len(self.fleet.fronts) > 1 and self.close(rng.choice(self.fleet.fronts))

    def close(self, front: Front) -> bool:
        """A front closes for good, once its owner's last flush was applied."""
        tracking, line = self.tracking, front.line
        if tracking.tracker.missing or not line.connected or line.local.worker in self.fleet.lost:
            return False
        line.local.applied(line.answer)
        while line.up or tracking.send(line):
            tracking.arrive(line)
            line.local.applied(line.answer)
        self.fleet.fronts.remove(front)
        self.model.close(front.number)
        for cycle in {frozenset(self.model.above[segment]) for segment in front.feeds}:
            self.fleet.closed.setdefault(cycle, []).append(front.label)
        tracking.close(front.number)
        if self.trace:
            self.say(f"front {front.number}", "closes for good")
        return True

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """All fronts go far ahead, all frames and holds come to their end: min time has to follow."""
        fleet, tracking = self.fleet, self.tracking
        if fleet.lost:
            return  # Min time stands; what watches it ends the life.
        for line in tracking.lines:
            if not line.connected:
                tracking.connect(line)
        for front in fleet.fronts:
            self._promise(front, LAST_TICK + front.number)
        expected: dict[int, int] = {}
        for _ in range(MAX_DRAIN_ROUNDS):
            self._round()
            expected = self._expected()
            if tracking.tracker.min_times() == expected and all(self._knows(line, expected) for line in tracking.lines):
                return
        holder = tracking.tracker.holder()
        raise Violation("liveness", f"min times are {tracking.tracker.min_times()}, not {expected}: {holder}")

    def _round(self) -> None:
        """All that can happen happens."""
        while self.fleet.frames or self.fleet.held or self.clocks.ready():
            self.receive()
            self.release()
            self.fire()
        while self.restore():
            pass
        for line in self.tracking.lines:
            self.tracking.send(line)
            while line.up:
                self.tracking.arrive(line)
        self.tracking.catch_up()
        for line in self.tracking.lines:
            while line.down:
                self.tracking.tell(line, 1)
        self.check()

    def _knows(self, line: Line, expected: dict[int, int]) -> bool:
        """Whether a worker has heard of all that it has named, and of the global min time."""
        named = expected.keys() if line.named is None else line.named
        known = all(line.local.min_time(segment) == expected[segment] for segment in named)
        return known and line.local.global_min == min(expected.values())

    def _expected(self) -> dict[int, int]:
        """What min times have to be once nothing is in flight: the least label of the fronts that can reach a segment.

        Where no front is open that feeds a source, it stays at its last front's label, or, as a register does not know
        which one was closed last, at that of another one if the tracker was rebuilt. Then what is due further ahead
        than the table reaches stays due.
        """
        above, tracker = self.model.above, self.tracking.tracker
        least = {s: [f.label for f in self.fleet.fronts if above[s].intersection(f.feeds)] for s in above}
        for segment in above:
            is_source = all(above[u] == above[segment] for u in above[segment])
            fed = any(above[u] == above[segment] for f in self.fleet.fronts for u in f.feeds)
            if is_source and not fed:
                closed = self.fleet.closed.get(frozenset(above[segment]), [self.tracking.start])
                tick = tracker.min_time(segment)
                stays = tick if self.tracking.rebuilt and closed[-1] <= tick <= max(closed) else closed[-1]
                for reached in (s for s in above if segment in above[s]):
                    least[reached].append(stays)
        reach = min(map(min, least.values())) + self.capacity
        for clock in self.clocks.clocks:
            if clock.due and clock.due[0][0] >= reach:
                for reached in (s for s in above if clock.sends in above[s]):
                    least[reached].append(clock.due[0][0])
        return {segment: min(labels) for segment, labels in least.items()}
