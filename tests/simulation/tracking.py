"""The tracker's process and its connections: messages in order per connection, delayed, doubled, lost with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from lowtide_tracker import Absolute, Floor, Flush, Graph, LocalTracker, Notice, Request, Tracker
from lowtide_tracker.audience import Audience
from lowtide_tracker.backlog import Backlog

from .verdict import Violation


@dataclass(slots=True, eq=False)
class Line:
    """A worker's connection with the tracker: one stream up, one down."""

    local: LocalTracker
    flush: Callable[[], Flush | None]
    """Makes the worker's next flush."""
    hear: Callable[[Notice], None]
    """Lets the worker hear a notice."""
    connected: bool = True
    up: deque[Flush | Absolute] = field(default_factory=deque)
    down: deque[Notice] = field(default_factory=deque)
    answer: int = 0
    """The last flush of which the tracker has said that it was applied; the worker hears of it later."""
    named: frozenset[int] | None = None
    """The segments that matter to the worker, which it has named; None for all."""
    leads: bool = True
    """Whether the global min time does."""


class Tracking:
    """One life's tracker, in as many processes, one after the other, as it takes.

    Args:
        rng: Says what is merged, lost and so on.
        inbound: The graph.
        register: Fronts and their opening floors; those opened later are put there.
        start: The life's first min time.
        capacity: Of the ack table, in ticks.
        feeds: As of `Tracker`.
        dues: As of `Tracker`.
    """

    def __init__(
        self,
        rng: Random,
        inbound: Mapping[int, Iterable[int]],
        register: dict[int, int],
        *,
        start: int,
        capacity: int,
        feeds: Mapping[int, Iterable[int]] | None = None,
        dues: Mapping[int, Iterable[int]] | None = None,
    ) -> None:
        self.rng = rng
        self.graph = Graph(inbound)
        self.register = register
        self.closed: set[int] = set()
        self.feeds = dict(feeds or {})
        self.dues = dict(dues or {})
        self.start, self.capacity = start, capacity
        self.tracker = Tracker(
            self.graph, register, start=start, capacity_ticks=capacity, feeds=self.feeds or None, dues=self.dues
        )
        self.lines: list[Line] = []
        self.number = 0
        """Of the last notice."""
        self.announced = dict.fromkeys(self.graph.segments, start)
        """The largest min times that somebody can have heard."""
        self.floors: dict[tuple[int, int, bool], Floor] = {}
        """What a subscriber to all notices has been told: the floors that min time rests on."""
        self.applied_floors: list[Floor] = []
        """Those of flushes that have been applied since the last notice."""
        self.touched = True
        """Whether the tracker has been asked to do anything since this was set to False."""
        self.rebuilt = False
        """Whether a tracker was."""
        self.requests = 0
        """How many snapshots have been asked for."""
        self.audience: Audience[Line] = Audience()
        """Those who are connected and have been told everything."""
        self.global_min = start
        """That of the last notice."""
        self.history: dict[int, Notice] = {}
        """The notices of this era, by number."""

    # -- steps -----------------------------------------------------------------------------------------------------

    def send(self, line: Line) -> bool:
        """A worker flushes, and sometimes hears before what was applied."""
        if self.rng.random() < 0.5:
            line.local.applied(line.answer)
        flush = line.flush()
        if flush is None:
            return False
        if line.connected:
            line.up.append(flush)
        return True

    def arrive(self, line: Line) -> Flush | Absolute:
        """What a worker has sent first arrives at the tracker, which says what has been applied."""
        message = line.up.popleft()
        self.touched = True
        missing = bool(self.tracker.missing)
        notices = self.tracker.receive(message)
        self.applied_floors += message.floors
        self.announce(notices, whole=missing)
        line.answer = self.tracker.applied(message.worker)
        return message

    def double(self, line: Line) -> None:
        """A worker sends its first flush that is under way twice."""
        line.up.appendleft(line.up[0])

    def tell(self, line: Line, count: int) -> Notice:
        """A worker hears the next `count` notices, merged; one that says everything is merged with none before."""
        merged, last = Backlog(), None
        for _ in range(min(count, len(line.down))):
            if last is not None and line.down[0].after != last:
                break
            last = line.down[0].number
            merged.add(line.down.popleft())
        notice = merged.take()
        assert notice is not None, "somebody asked for a notice that was not there"
        line.hear(notice)
        return notice

    def ask(self) -> Request:
        """Ask for a snapshot at the global min time of now."""
        self.requests += 1
        notice = self.tracker.request(self.requests)
        self.announce([notice], whole=False)
        assert notice.request is not None
        return notice.request

    def connect(self, line: Line) -> None:
        """A worker's connection was lost, and all that was under way with it; now there is a new one."""
        worker = line.local.worker
        line.up.clear()
        line.down.clear()
        line.connected = True
        if worker in self.tracker.missing:
            line.up.append(line.local.absolute())
            return
        line.local.applied(self.tracker.applied(worker))
        line.up.extend(line.local.unacknowledged())
        self.subscribe(line)

    def subscribe(self, line: Line) -> None:
        """A worker subscribes, or names other segments; it is told everything once the tracker knows it."""
        if line.connected and not self.tracker.missing:
            self._tell_all(line, self.tracker.whole_notice())

    def catch_up(self) -> bool:
        """Those hear the rest who have heard nothing of late; whether there was anything."""
        told = [(line, notice) for line, notice in self.audience.late() if line.connected]
        for line, notice in told:
            self._check_share(line, notice)
            line.down.append(notice)
        return bool(told)

    def crash(self) -> None:
        """The tracker's process dies, another one takes its place and waits for all workers."""
        era = self.tracker.era + 1
        workers = [line.local.worker for line in self.lines]
        self.tracker = Tracker(
            self.graph,
            self.register,
            start=self.start,
            capacity_ticks=self.capacity,
            feeds=self.feeds or None,
            closed=self.closed,
            dues=self.dues,
            era=era,
        ).rebuilt_from(workers)
        self.number = 0
        self.audience = Audience()
        self.history = {}
        self.applied_floors.clear()
        self.announced = {
            segment: max([self.start, *(line.local.min_time(segment) for line in self.lines)])
            for segment in self.graph.segments
        }
        for line in self.lines:
            line.connected = False
            line.up.clear()
            line.down.clear()
        self.rebuilt = self.touched = True

    def open(self, front: int, floor: int, feeds: tuple[int, ...] | None) -> int:
        """A front is opened, then registered; returns the tick below which it labels nothing."""
        self.touched = True
        tick = self.tracker.open_front(front, floor, feeds)
        self.register[front] = tick
        if feeds is not None:
            self.feeds[front] = feeds
        return tick

    def forget(self, front: int, offset: int) -> None:
        """A commit has made a front's floors below an offset superfluous."""
        self.tracker.forget_floors(front, offset)
        for key in [key for key in self.floors if key[0] == front and key[1] < offset]:
            del self.floors[key]
        self.applied_floors = [each for each in self.applied_floors if each.front != front or each.offset >= offset]

    def close(self, front: int) -> None:
        """A front is closed for good."""
        self.touched = True
        self.closed.add(front)
        self.announce(self.tracker.close_front(front), whole=False)

    # -- laws ------------------------------------------------------------------------------------------------------

    def announce(self, notices: list[Notice], *, whole: bool) -> None:
        """Notices go to all: in order, each once, never back, with all the floors they rest on."""
        for notice in notices:
            after = 0 if whole else self.number
            if (notice.number, notice.after, notice.era) != (self.number + 1, after, self.tracker.era):
                raise Violation("error", f"{notice} follows notice {self.number} of era {self.tracker.era}")
            self.number = notice.number
            for segment, tick in notice.min_times.items():
                before = self.announced[segment]
                if tick < before or (tick == before and not whole):
                    raise Violation("safety", f"segment {segment} goes from min time {before} to {tick}")
                self.announced[segment] = tick
            self._hear_floors(notice)
            self.history[notice.number] = notice
            if whole:
                for line in self.lines:
                    if line.connected:
                        self._tell_all(line, notice)
                self.audience.tell(notice)
            else:
                self._tell(notice)
            self.global_min = notice.global_min

    def _tell_all(self, line: Line, notice: Notice) -> None:
        self.audience.join(line, notice, line.named, global_min=line.leads)
        line.down.append(notice)

    def _tell(self, notice: Notice) -> None:
        """A notice goes to those whom it concerns, at once, and to nobody else."""
        named = self.audience.named
        for line in self.lines:
            if line.connected and line not in named:
                # It was there when the life began, and has been told of everything, which was nothing.
                begun = Notice(notice.era, 0, 0, dict.fromkeys(self.graph.segments, self.start), self.start)
                self.audience.join(line, begun, line.named, global_min=line.leads)
        told = dict(self.audience.tell(notice))
        for line in self.lines:
            if line.connected:
                share, due = told.get(line), self._concerns(line, notice)
                if share is None and due:
                    raise Violation("liveness", f"worker {line.local.worker} is not told of {notice}")
                if share is not None and not due:
                    raise Violation("error", f"worker {line.local.worker} is told of {share}, which it left out")
                if share is not None:
                    self._check_share(line, share)
                    line.down.append(share)

    def _check_share(self, line: Line, share: Notice) -> None:
        """See that a notice for a worker has all that it named since the last one, all floors, and nothing else."""
        min_times: dict[int, int] = {}
        floors: set[Floor] = set()
        for number in range(share.after + 1, share.number + 1):
            min_times |= self.history[number].min_times
            floors |= set(self.history[number].floors)
        mine = {each: tick for each, tick in min_times.items() if line.named is None or each in line.named}
        if share.min_times.keys() - mine.keys():
            raise Violation("error", f"{share} names what worker {line.local.worker} left out")
        if share.min_times != mine or floors - set(share.floors):
            raise Violation("safety", f"{share} for worker {line.local.worker} lacks some of {mine} and {floors}")

    def _concerns(self, line: Line, notice: Notice) -> bool:
        """Whether a notice has something that a worker has named."""
        if line.named is None or notice.request is not None or line.named & notice.min_times.keys():
            return True
        return line.leads and notice.global_min > self.global_min

    def _hear_floors(self, notice: Notice) -> None:
        for floor in notice.floors:
            key = (floor.front, floor.offset, floor.cap)
            if key not in self.floors or self.floors[key].tick < floor.tick:
                self.floors[key] = floor
        for floor in self.applied_floors:
            told = self.floors.get((floor.front, floor.offset, floor.cap))
            if told is None or told.tick < floor.tick:
                raise Violation("safety", f"notice {notice.number} rests on {floor}, which was never told")
        self.applied_floors.clear()
