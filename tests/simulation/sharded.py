"""A tracker in shards and their connections: each in order, all against one another in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random

from lowtide_tracker import Absolute, Flush, Graph, Notice, Tracker
from lowtide_tracker.audience import Audience
from lowtide_tracker.messages import FrontClosed, FrontOpened, Order, Report
from lowtide_tracker.shards.merge import Merge
from lowtide_tracker.shards.shard import Shard
from lowtide_tracker.shards.sharding import Splitter

from .tracking import Line, Tracking
from .verdict import Violation

Ask = tuple[int, int, tuple[int, ...] | None, Callable[[int], None]]
"""(front, floor, feeds, what is done once it is open)."""


class ShardedTracking(Tracking):
    """One life's shards and their merge; what a worker has sent is in `Line.up` as (shard, message).

    A centralised tracker runs beside it that gets each flush once all shards have it: min times never pass its own.

    Args:
        shards: How many there are.
    """

    tracker: Merge  # type: ignore[assignment]

    def __init__(
        self,
        rng: Random,
        inbound: Mapping[int, Iterable[int]],
        register: dict[int, int],
        *,
        shards: int,
        start: int,
        capacity: int,
        dues: Mapping[int, Iterable[int]],
    ) -> None:
        super().__init__(rng, inbound, register, start=start, capacity=capacity, dues=dues)
        self.central: Tracker | None = Tracker(
            Graph(inbound), register, start=start, capacity_ticks=capacity, dues=self.dues
        )
        """None once a front was opened late: at another min time, it opens at another tick; see `_lose_count`, too."""
        self.central._advance()  # Of itself it moves with the first flush only, the merge with the first reports.
        self.waiting: dict[int, deque[Flush]] = {}
        """By worker: the flushes that the centralised tracker will get."""
        self.count = shards
        self.max_pending = rng.choice([2, 16])
        self.tracker = Merge(
            self.graph, register, shards=shards, start=start, capacity_ticks=capacity, max_pending=self.max_pending
        )
        self.shards = [
            Shard(self.graph, register, shard=at, shards=shards, start=start, dues=self.dues) for at in range(shards)
        ]
        self.splitters: dict[int, Splitter] = {}
        self.away: set[tuple[int, int]] = set()
        """(worker, shard) without a connection."""
        self.reports: list[deque[Report]] = [deque() for _ in range(shards)]
        self.orders: list[deque[Order | Notice]] = [deque() for _ in range(shards)]
        self.asked: dict[int, Ask] = {}
        """Fronts that are being opened."""
        self.closing: set[int] = set()
        self.rebuilt = False
        """Whether any shard was."""
        self.eager = rng.choice([0.0, 0.2, 0.9])
        """How often a shard reports after a single part; else several are one report."""
        self.calm = False
        """Whether all that can arrive does so at once."""
        for shard in self.shards:
            shard.join(1)

    # -- steps -----------------------------------------------------------------------------------------------------

    def send(self, line: Line) -> bool:
        """A worker flushes, to all shards."""
        if self.rng.random() < 0.5:
            line.local.applied(line.answer)
        flush = line.flush()
        if flush is None:
            return False
        worker = line.local.worker
        self.waiting.setdefault(worker, deque()).append(flush)
        splitter = self.splitters.setdefault(worker, Splitter(self.count))
        for at, part in enumerate(splitter.split(flush)):
            if (worker, at) not in self.away:
                line.up.append((at, part))  # type: ignore[arg-type]
        return True

    def arrive(self, line: Line) -> Flush | Absolute:
        """The first message to some shard arrives there."""
        at = self.rng.choice(sorted({at for at, _ in self.up(line)}))
        message = self.take(line, at)
        self.shards[at].receive(message)
        self.touched = True
        line.answer = min(shard.applied(line.local.worker) for shard in self.shards)
        if self.calm or self.rng.random() < self.eager:
            self.tell_merge(at)
        if self.calm:
            self.settle()
        return message

    def up(self, line: Line) -> deque[tuple[int, Flush | Absolute]]:
        """What a worker has sent."""
        return line.up  # type: ignore[return-value]

    def take(self, line: Line, at: int) -> Flush | Absolute:
        """Takes the first message to a shard off its connection."""
        up = self.up(line)
        place = next(place for place, (to, _) in enumerate(up) if to == at)
        message = up[place][1]
        del up[place]
        return message

    def double(self, line: Line) -> None:
        """A worker sends the first part that is under way twice."""
        self.up(line).appendleft(self.up(line)[0])

    def tell_merge(self, at: int) -> None:
        """A shard makes a report of what has gathered."""
        report = self.shards[at].report()
        if report is not None:
            self.reports[at].append(report)

    def hear_report(self, at: int) -> None:
        """A shard's first report arrives at the merge."""
        missing = bool(self.tracker.missing)
        events = self.tracker.receive(self.reports[at].popleft())
        self.touched = True
        self.follow(event.front for event in events if isinstance(event, FrontClosed))
        self.announce([event for event in events if isinstance(event, Notice)], whole=missing)
        for event in events:
            if isinstance(event, FrontOpened):
                self._opened(event)

    def follow(self, closed: Iterable[int]) -> None:
        """The centralised tracker gets what all shards have, and min times are held against its own."""
        for worker, flushes in self.waiting.items():
            while flushes and flushes[0].number <= self.tracker.applied(worker):
                flush = flushes.popleft()
                self.applied_floors += flush.floors
                if self.central is not None:
                    self.central.receive(flush)
        for front in closed:
            self.closing.discard(front)
            if self.central is not None:
                self.central.close_front(front)
        if self.central is None or self.tracker.missing:
            return
        for segment, tick in self.tracker.min_times().items():
            least = self.central.min_time(segment)
            if tick > least:
                raise Violation("safety", f"segment {segment} is at {tick}, the centralised tracker at {least}")

    def announce(self, notices: list[Notice], *, whole: bool) -> None:
        """Notices go to the shards as well."""
        super().announce(notices, whole=whole)
        for notice in notices:
            for orders in self.orders:
                orders.append(notice)

    def obey(self, at: int) -> bool:
        """What the merge has sent to a shard first arrives there."""
        shard = self.shards[at]
        if not self.orders[at] or shard.missing:
            return False
        message = self.orders[at].popleft()
        if isinstance(message, Notice):
            shard.hear(message)
        else:
            shard.order(message)
        self.touched = True
        if self.calm or self.rng.random() < self.eager:
            self.tell_merge(at)
        return True

    def settle(self) -> None:
        """All reports, orders and notices between shards and merge arrive."""
        busy = True
        while busy:
            busy = False
            for at in range(self.count):
                self.tell_merge(at)
                while self.reports[at]:
                    self.hear_report(at)
                    busy = True
                while self.obey(at):
                    busy = True

    def connect(self, line: Line) -> None:
        """All connections of a worker were lost, with what was under way; now there are new ones."""
        for at in range(self.count):
            self.connect_shard(line, at)
        line.down.clear()
        line.connected = True
        self.subscribe(line)

    def connect_shard(self, line: Line, at: int) -> None:
        """A worker's connection with one shard is a new one."""
        worker, shard = line.local.worker, self.shards[at]
        left = [(to, message) for to, message in self.up(line) if to != at]
        self.up(line).clear()
        self.up(line).extend(left)
        self.away.discard((worker, at))
        splitter = self.splitters.setdefault(worker, Splitter(self.count))
        if worker in shard.missing:
            self.up(line).append((at, splitter.report(line.local.absolute(), at)))
            return
        for flush in line.local.unacknowledged():
            if flush.number > shard.applied(worker):
                self.up(line).append((at, splitter.part(flush, at)))

    def cut(self, at: int) -> None:
        """The connection of a shard with the merge is lost and recreated."""
        self.reports[at].clear()
        self.orders[at].clear()
        self.shards[at].join(self.tracker.era)
        self.orders[at].extend(self.tracker.unfollowed(at))
        if not self.tracker.missing:
            self.orders[at].append(self.tracker.whole_notice())

    def kill_shard(self, at: int) -> None:
        """A shard's process dies; what it had sent may arrive or not."""
        if self.rng.random() < 0.5:
            while self.reports[at]:
                self.hear_report(at)
        self._lose_count()
        merge = self.tracker
        self.shards[at] = Shard(
            self.graph,
            merge.fronts,
            shard=at,
            shards=self.count,
            start=self.start,
            feeds=merge.feeds or None,
            closed=merge.closed,
            dues=self.dues,
            orders=merge.orders,
        ).rebuilt_from([line.local.worker for line in self.lines])
        self.reports[at].clear()
        self.orders[at].clear()
        self.shards[at].join(merge.era)
        if not merge.missing:
            self.orders[at].append(merge.whole_notice())
        for line in self.lines:
            self.away.add((line.local.worker, at))
            left = [(to, message) for to, message in self.up(line) if to != at]
            self.up(line).clear()
            self.up(line).extend(left)
        self.rebuilt = self.touched = True

    def crash(self) -> None:
        """The merge's process dies, another one takes its place and waits for what all shards have to say."""
        self._lose_count()
        self.tracker = Merge(
            self.graph,
            self.register,
            shards=self.count,
            start=self.start,
            capacity_ticks=self.capacity,
            feeds=self.feeds or None,
            closed=self.closed,
            era=self.tracker.era + 1,
            max_pending=self.max_pending,
        )
        self.number = 0
        self.audience = Audience()
        self.history = {}
        self.announced = {
            segment: max([self.start, *(line.local.min_time(segment) for line in self.lines)])
            for segment in self.graph.segments
        }
        for line in self.lines:
            line.connected = False
            line.down.clear()
        for at in range(self.count):
            self.cut(at)
        self.touched = True

    def again(self) -> None:
        """What was asked of a merge that died is asked again."""
        if self.tracker.missing:
            return
        given = {(order.floor is None, order.front) for order in self.tracker.given}
        for front, (_, floor, feeds, _) in self.asked.items():
            if (False, front) not in given:
                self._give(self.tracker.open_front(front, floor, feeds))
        for front in sorted(self.closing):
            if (True, front) not in given:
                self._give(self.tracker.close_front(front))

    def open(self, front: int, floor: int, feeds: tuple[int, ...] | None) -> int:
        """A front that nobody reads is opened."""
        self.ask_open(front, floor, feeds, lambda _: None)
        return floor

    def ask_open(self, front: int, floor: int, feeds: tuple[int, ...] | None, done: Callable[[int], None]) -> None:
        """A front begins to be opened; once it is, it is registered and ``done`` gets its tick."""
        self.asked[front] = (front, floor, feeds, done)
        self.touched = True
        if feeds != ():
            self.central = None
        self.again()

    def close(self, front: int) -> None:
        """A front begins to be closed for good."""
        self.closed.add(front)
        self.closing.add(front)
        self.touched = True
        self.again()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _lose_count(self) -> None:
        """Who takes a dead one's place has fronts closed whose closing nobody has answered, and goes on from there."""
        if self.closing:
            self.central = None

    def _give(self, order: Order) -> None:
        for orders in self.orders:
            orders.append(order)

    def _opened(self, event: FrontOpened) -> None:
        asked = self.asked.pop(event.front, None)
        if asked is None:
            return
        self.register[event.front] = event.tick
        if asked[2] is not None:
            self.feeds[event.front] = asked[2]
        asked[3](event.tick)
