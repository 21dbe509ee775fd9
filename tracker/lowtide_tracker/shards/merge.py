"""Merge of a tracker's shards: takes their reports and returns the min times of the whole life (R9)."""

from collections import deque
from collections.abc import Iterable, Mapping

from lowtide_tracker.announced import Announced
from lowtide_tracker.errors import FrontIsClosed, StillRebuilding, TableFull, TimeWentBack
from lowtide_tracker.graph import Graph
from lowtide_tracker.messages import FrontClosed, FrontOpened, Joined, Notice, Order, Report
from lowtide_tracker.shards.sharding import NEVER
from lowtide_tracker.table import INT64_MIN

MAX_PENDING = 16
"""Limit on a shard's separate reports that wait to be covered; at the limit the last one absorbs later ones."""


class Uncovered:
    """The flushes that other shards need before a report is covered; it grows when later reports join it."""

    def __init__(self, report: Report) -> None:
        self._orders = report.orders
        self._nodes = dict(report.nodes)

    def add(self, report: Report) -> None:
        """A later report of the same shard becomes one with it."""
        self._orders = report.orders
        self._nodes.update(report.nodes)

    def is_covered(self, nodes: Mapping[int, int], orders: int) -> bool:
        """Return whether all shards have it by now; progress never goes back, so each worker is checked off once."""
        left = self._nodes
        while left and orders >= self._orders:
            worker, number = left.popitem()
            if nodes.get(worker, 0) < number:
                left[worker] = number
                break
        return not left and orders >= self._orders


class ShardView:
    """A shard as the merge sees it: its node times, and its stands as they follow one another.

    A report is *covered* once every shard has applied all the parts that it counts. The view's *stand* of a group is
    the lowest since the last covered report, that one's included. The last covered report alone would not do, though
    the papers have it so: a report that is not covered may lack nothing of what another shard's covered one rests on
    and have, besides, the part of another worker.
    """

    def __init__(self, groups: int, max_pending: int = MAX_PENDING) -> None:
        self._max_pending = max_pending
        self.nodes: dict[int, int] = {}
        self.orders = 0
        self.covered = [INT64_MIN] * groups
        """Per group: where it stood in the last report that was covered."""
        self.pending: deque[tuple[Uncovered, dict[int, tuple[int, int]]]] = deque()
        """Reports that are not covered, oldest first, with group -> (lowest, stand)."""
        self.whole = False
        """True if it has reported everything to this merge."""

    def stands(self) -> list[int]:
        """Per group the lowest stand since the last covered report."""
        stands = list(self.covered)
        for _, moved in self.pending:
            for group, (low, _) in moved.items():
                stands[group] = min(stands[group], low)
        return stands

    def add(self, report: Report, moved: dict[int, tuple[int, int]]) -> None:
        """Take a report; where many wait, it becomes one with the last: the shard could have reported so itself."""
        if len(self.pending) < self._max_pending:
            self.pending.append((Uncovered(report), moved))
            return
        last, before = self.pending[-1]
        last.add(report)
        for group, (low, stand) in moved.items():
            before[group] = (min(low, before.get(group, (low, stand))[0]), stand)

    def cover(self) -> None:
        """The oldest pending report is covered."""
        _, moved = self.pending.popleft()
        for group, (_, stand) in moved.items():
            self.covered[group] = stand


class Merge(Announced):
    """The min times of a life whose ticks several shards have divided among them.

    Its laws:

    * A min time is never above what a centralised tracker says that has applied, of every worker, the flushes that all
      shards have; once no part is under way it is the same.
    * A group's min time is the smallest of its stands in all shards, the min times of the groups that feed it (R7), and
      the ticks of fronts that are being opened. It never goes back.
    * A notice is made only when a min time moved, or for a request; it names all that moved, and the new floors.

    Args:
        graph: segments and what feeds them.
        fronts: every registered front with its opening floor.
        shards: how many there are.
        start: the min time of all segments at the start of the life.
        capacity_ticks: how far acks may lie ahead of their segment's min time.
        feeds: as of `Tracker`.
        closed: as of `Tracker`.
        era: how many merges this life has had, with this one; from 2 on the first notice says everything, once all
            shards have.
        max_pending: see `MAX_PENDING`; at least 2.
    """

    def __init__(
        self,
        graph: Graph,
        fronts: Mapping[int, int],
        *,
        shards: int,
        start: int,
        capacity_ticks: int,
        feeds: Mapping[int, Iterable[int]] | None = None,
        closed: Iterable[int] = (),
        era: int = 1,
        max_pending: int = MAX_PENDING,
    ) -> None:
        super().__init__(graph, start, era)
        self.capacity_ticks = capacity_ticks
        self.fronts = dict(fronts)
        """All fronts that were opened, with their opening floors: what a new shard begins with."""
        self.feeds = {front: tuple(segments) for front, segments in (feeds or {}).items()}
        self.closed = set(closed)
        self._views = [ShardView(len(graph.groups), max_pending) for _ in range(shards)]
        self._nodes: dict[int, int] = {}
        """Per worker: the smallest node time of all shards."""
        self.given: list[Order] = []
        """All orders, from number 1."""
        self._done = 0
        """The last order that all shards have followed."""
        self._answered = 0
        """The last order that was answered."""
        self._opening: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        """Order -> (front, tick, groups): being opened, and holding min time meanwhile."""
        self._heartbeats: dict[int, list[int]] = {}
        """Front being opened -> what the shards have answered."""
        self._complete = era == 1
        """True if everything that was announced is known."""

    # -- messages --------------------------------------------------------------------------------------------------

    def receive(self, report: Report) -> list[Notice | FrontOpened | FrontClosed]:
        """Take a shard's report; return at most one notice, and the answers to orders that all have followed.

        Raises:
            TimeWentBack: a shard stands below what was announced; the life ends.
            TableFull: an ack lies too far ahead of what was announced; the life ends.
        """
        view = self._views[report.shard]
        moved: dict[int, tuple[int, int]] = {}
        for segment, low, stand in report.stands:
            group = self.graph.group_of(segment)
            least = stand if report.whole else low
            if self._complete and least < self._min[group]:
                raise TimeWentBack(segment, least, self._min[group])
            moved[group] = (low, stand)
        for segment, tick in report.highs if self._complete else ():
            if tick - self.min_time(segment) >= self.capacity_ticks:
                raise TableFull(segment, tick, self.min_time(segment), self.capacity_ticks)
        view.whole = view.whole or report.whole
        laggards = [worker for worker, _ in report.nodes if view.nodes.get(worker, 0) <= self._nodes.get(worker, 0)]
        view.nodes.update(report.nodes)
        view.orders = report.orders
        view.add(report, moved)
        self._floors.add(report.floors)
        for front, tick in report.opened:
            if front in self._heartbeats:
                self._heartbeats[front].append(tick)
        self._cover(laggards)
        answers = self._answers()
        return [*self._advance(), *answers]

    def open_front(self, front: int, floor: int, feeds: Iterable[int] | None = None) -> Order:
        """Begin to open a front: the order goes to every shard, and `FrontOpened` comes once all have followed it.

        Raises:
            FrontIsClosed: it was closed for good.
            StillRebuilding: what was announced is not known yet.
        """
        self._refuse_while_rebuilding()
        if front in self.closed:
            raise FrontIsClosed(front, self.fronts[front])
        fed = self.graph.sources if feeds is None else tuple(feeds)
        tick = max([floor, *([self.min_time(segment) for segment in fed] or self._min)])
        if front not in self.fronts:
            self.fronts[front] = tick
            if feeds is not None:
                self.feeds[front] = fed
        order = self._order(front, tick, fed)
        self._opening[order.number] = (front, tick, tuple({self.graph.group_of(segment) for segment in fed}))
        self._heartbeats.setdefault(front, [])
        return order

    def close_front(self, front: int) -> Order:
        """Begin to close a front for good, after all shards have applied the last flush that speaks of it."""
        self._refuse_while_rebuilding()
        self.closed.add(front)
        return self._order(front, None)

    def joined(self) -> Joined:
        """Return the first order for a shard that joins."""
        return Joined(self.orders, self.fronts, self.feeds, tuple(sorted(self.closed)))

    def unfollowed(self, shard: int) -> list[Order]:
        """The orders that a shard has not followed: to be sent on a new connection."""
        return self.given[self._views[shard].orders :]

    # -- questions -------------------------------------------------------------------------------------------------

    @property
    def orders(self) -> int:
        """The number of the last order; what `fronts`, `feeds` and `closed` have in them."""
        return len(self.given)

    @property
    def missing(self) -> tuple[int, ...]:
        """The shards that this merge waits for before it announces anything."""
        if self._complete:
            return ()
        return tuple(at for at, view in enumerate(self._views) if not view.whole or INT64_MIN in view.stands())

    def applied(self, worker: int) -> int:
        """The last flush of a worker of which all shards have applied their part."""
        return self._nodes.get(worker, 0)

    def holder(self, segment: int | None = None) -> tuple[int, int] | None:
        """(shard, segment) of what holds a min time: where to ask further. None while a front is being opened."""
        group = self._group_of(segment)
        while True:
            stands = [view.stands()[group] for view in self._views]
            source = min(self.graph.inbound[group], key=self._min.__getitem__, default=None)
            if min(stands) <= self._min[group]:
                return stands.index(min(stands)), self.graph.groups[group][0]
            if source is None or self._min[source] > self._min[group]:
                return None
            group = source

    def check(self) -> None:
        """The invariants; simulations call it after every step."""
        for worker, number in self._nodes.items():
            assert number == min(view.nodes.get(worker, 0) for view in self._views), f"node time of {worker} is stale"
        if self._complete:
            for group, inbound in enumerate(self.graph.inbound):
                for source in inbound:
                    assert self._min[group] <= self._min[source], f"group {group} has passed group {source}"

    # -- rules -----------------------------------------------------------------------------------------------------

    def _cover(self, laggards: Iterable[int]) -> None:
        """Take off every view what all shards have applied by now; ``laggards`` are the workers that may be due."""
        for worker in laggards:
            self._nodes[worker] = min([view.nodes.get(worker, 0) for view in self._views])
        self._done = min([view.orders for view in self._views])
        for view in self._views:
            while view.pending and view.pending[0][0].is_covered(self._nodes, self._done):
                view.cover()

    def _limits(self) -> list[int]:
        """Per group the smallest stand of all shards, and of fronts that are being opened."""
        limits = [min(stands) for stands in zip(*(view.stands() for view in self._views), strict=True)]
        for _, tick, groups in self._opening.values():
            for group in groups:
                limits[group] = min(limits[group], tick)
        return limits

    def _advance(self) -> list[Notice]:
        limits = self._limits()
        if not self._complete and INT64_MIN in limits:
            return []
        moved: dict[int, int] = {}
        for group, inbound in enumerate(self.graph.inbound):
            limit = min([limits[group], *(self._min[source] for source in inbound)])
            if self._min[group] < limit < NEVER:
                self._min[group] = limit
                moved.update(dict.fromkeys(self.graph.groups[group], limit))
        if not self._complete:
            self._complete, self._notice = True, 1
            self._floors.take_new()
            return [self.whole_notice()]
        return [self._next_notice(moved)] if moved else []

    def _answers(self) -> list[FrontOpened | FrontClosed]:
        answers: list[FrontOpened | FrontClosed] = []
        for order in self.given[self._answered : self._done]:
            front = order.front
            if order.floor is None:
                answers.append(FrontClosed(front))
                continue
            _, tick, _ = self._opening.pop(order.number)
            heartbeat = min(self._heartbeats.pop(front, ()), default=tick)
            answers.append(FrontOpened(front, max(tick, heartbeat)))
        self._answered = self._done
        return answers

    def _order(self, front: int, floor: int | None, feeds: tuple[int, ...] = ()) -> Order:
        order = Order(len(self.given) + 1, front, floor, feeds)
        self.given.append(order)
        return order

    def _refuse_while_rebuilding(self) -> None:
        if not self._complete:
            raise StillRebuilding(self.missing)
