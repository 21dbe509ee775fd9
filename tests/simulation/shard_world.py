"""The protocol's world on a tracker in shards, which are killed, cut off and rebuilt one by one (R9)."""

from __future__ import annotations

from typing import ClassVar

from lowtide_tracker import Absolute, FlushGap

from .fleet import Front
from .protocol import ProtocolWorld
from .sharded import ShardedTracking
from .tracking import Line
from .verdict import Violation
from .world import Step, Trace


class ShardWorld(ProtocolWorld):
    """Two to five shards; a shard's reports, the merge's orders and every worker's parts arrive in any order."""

    name: ClassVar[str] = "shards"
    tracking: ShardedTracking

    def __init__(
        self, seed: int, trace: Trace | None = None, *, loss: bool | None = None, slow: bool = False, faults: int = 1
    ) -> None:
        self.slow = slow
        """Whether shards report seldom, and one of them is far behind the others."""
        self.faults = faults
        """How often shards fail, compared with the usual."""
        self._lost_at: int | None = None
        super().__init__(seed, trace, loss=loss)

    def tracked(self, register: dict[int, int], start: int, dues: dict[int, list[int]]) -> ShardedTracking:
        """The life's shards and their merge."""
        self._lost_at = None
        return ShardedTracking(
            self.rng,
            self.inbound,
            register,
            shards=self.rng.choice([1, 2, 2, 3, 5]),
            start=start,
            capacity=self.capacity,
            dues=dues,
        )

    def chances(self) -> list[tuple[int, str, Step]]:
        """The protocol's steps, and those between shards and merge."""
        return [
            *super().chances(),
            (6 if self.slow else 60, "report", self.report),
            (60, "merge", self.merge),
            (40, "obey", self.obey),
            (2 * self.faults, "cut", self.cut),
            (3 + self.faults, "again", self.again),
            (self.faults - 1, "kill", self.kill),
        ]

    def report(self) -> bool:
        """A shard reports what has gathered."""
        at = self.rng.randrange(self.tracking.count)
        before = len(self.tracking.reports[at])
        self.tracking.tell_merge(at)
        return len(self.tracking.reports[at]) > before

    def merge(self) -> bool:
        """A report arrives at the merge."""
        there = [at for at, reports in enumerate(self.tracking.reports) if reports]
        if not there:
            return False
        at = self.rng.choice(there)
        report = self.tracking.reports[at][0]
        self.tracking.hear_report(at)
        if self.trace:
            self.say("merge", f"takes of shard {at}: nodes {dict(report.nodes)}, stands {report.stands}")
        return True

    def obey(self) -> bool:
        """An order or a notice arrives at a shard."""
        return self.tracking.obey(self.rng.randrange(self.tracking.count))

    def cut(self) -> bool:
        """A shard is cut off from the merge, or from a worker, and connects again."""
        tracking, rng = self.tracking, self.rng
        at = rng.randrange(tracking.count)
        if rng.random() < 0.5:
            tracking.cut(at)
            return True
        line = rng.choice(tracking.lines)
        if line.local.worker in self.fleet.lost:
            return False
        tracking.connect_shard(line, at)
        return True

    def again(self) -> bool:
        """Workers that have no connection with a shard connect; what a dead merge was asked is asked again."""
        tracking = self.tracking
        tracking.again()
        if not tracking.away:
            return False
        worker, at = self.rng.choice(sorted(tracking.away))
        if worker in self.fleet.lost:
            return False
        tracking.connect_shard(tracking.lines[worker], at)
        return True

    def take(self, line: Line) -> None:
        """A shard takes a part; a gap ends the life."""
        worker = line.local.worker
        try:
            message = self.tracking.arrive(line)
        except FlushGap:
            if worker not in self.fleet.lost:
                raise
            self.begin()
            return
        if self._lost_at is not None and worker in self.fleet.lost:
            number, made = self.tracking.shards[self._lost_at].applied(worker), self._lost_number
            if number >= made:
                raise Violation("error", f"shard {self._lost_at} took part {number} of worker {worker}; {made} is lost")
        if self.trace:
            acks = [(segment, tick) for segment, tick, _ in message.acks]
            self.say("shards", f"take of flush {message.number} of worker {worker}: {acks} {message.heartbeats}")

    _lost_number = 0

    def double(self) -> bool:
        """A part goes out twice, or, in some worlds, is lost without anybody's knowing."""
        tracking = self.tracking
        lines = [line for line in tracking.lines if line.up and not isinstance(tracking.up(line)[0][1], Absolute)]
        if not lines:
            return False
        line = self.rng.choice(lines)
        worker, (at, part) = line.local.worker, tracking.up(line)[0]
        assert not isinstance(part, Absolute)
        number = part.number
        once = sum(to == at and not isinstance(m, Absolute) and m.number == number for to, m in tracking.up(line))
        shard = tracking.shards[at]
        if self.loss and once == 1 and number > shard.applied(worker) and not shard.missing and not self.fleet.lost:
            tracking.up(line).popleft()
            self.fleet.lost.add(worker)
            self._lost_at, self._lost_number = at, number
        else:
            tracking.double(line)
        return True

    def open(self) -> bool:
        """A front begins to open late."""
        rng, tracking = self.rng, self.tracking
        opened = len(tracking.register) + len(tracking.asked)
        if len(self.fleet.fronts) + len(tracking.asked) > 4 or tracking.tracker.missing:
            return False
        line = rng.choice(tracking.lines)
        feeds = tuple(rng.sample(sorted(self.inbound), 1)) if rng.random() < 0.3 else None
        fed = tracking.graph.sources if feeds is None else feeds
        floor = rng.choice([0, self.fleet.fronts[0].label])
        tracking.ask_open(opened, floor, feeds, lambda tick: self._front(Front(opened, line, fed, tick)))
        return True

    def kill(self) -> bool:
        """A shard's process dies."""
        if self.fleet.lost or any(shard.missing for shard in self.tracking.shards):
            return False
        self.tracking.kill_shard(self.rng.randrange(self.tracking.count))
        return True

    def rare(self) -> bool:
        """The merge's or a shard's process dies, or a front is closed."""
        rng, tracking = self.rng, self.tracking
        if rng.random() < 0.4 and not self.fleet.lost:
            tracking.kill_shard(rng.randrange(tracking.count))
            return True
        return super().rare()

    def close(self, front: Front) -> bool:
        """A front closes, once all shards have its owner's last flush."""
        tracking, worker = self.tracking, front.line.local.worker
        if any(shard.missing for shard in tracking.shards) or any(each == worker for each, _ in tracking.away):
            return False
        return super().close(front)

    def check(self) -> None:
        """The protocol's laws, and the invariants of every shard."""
        touched = self.tracking.touched
        super().check()
        if touched:
            for shard in self.tracking.shards:
                shard.check()

    def drain(self) -> None:
        """No fault comes any more."""
        tracking = self.tracking
        if self.fleet.lost:
            return
        for line in tracking.lines:
            tracking.connect(line)
        tracking.calm = True
        for line in tracking.lines:
            while line.up:
                tracking.arrive(line)
        tracking.settle()
        for line in tracking.lines:
            tracking.connect(line)
        tracking.again()
        tracking.settle()
        super().drain()
        if tracking.central is not None and not tracking.rebuilt and tracking.tracker.era == 1:
            expected = tracking.central.min_times()
            if tracking.tracker.min_times() != expected:
                raise Violation("liveness", f"min times are {tracking.tracker.min_times()}, centralised {expected}")
