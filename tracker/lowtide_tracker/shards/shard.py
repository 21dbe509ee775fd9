"""One shard of a tracker: the acks of its ticks, and of each group the smallest tick that they hold (R9)."""

from collections.abc import Iterable, Mapping
from typing import Self

from lowtide_tracker.dues import Dues
from lowtide_tracker.errors import FlushGap, FrontIsClosed, ProtocolError, StillRebuilding, TimeWentBack
from lowtide_tracker.fields import Ack
from lowtide_tracker.floors import Floors
from lowtide_tracker.fronts import Fronts
from lowtide_tracker.graph import Graph
from lowtide_tracker.holder import Holder
from lowtide_tracker.messages import Absolute, Flush, Joined, Notice, Order, Report
from lowtide_tracker.rebuild import Rebuild
from lowtide_tracker.shards.sharding import NEVER, round_up, shard_of
from lowtide_tracker.table import INT64_MIN, Table

NO_LIMIT = 1 << 65
"""Of the table, in ticks: how far ahead acks may be depends on what was announced, which the merge alone knows."""


class Shard:
    """One of several processes that share the ticks of a life.

    Its laws:

    * A group's *stand* is the smallest of: the first non-zero tick of its segments among the shard's own, the
      heartbeats of the open fronts that feed it, and what is due into it, the latter two rounded up. It may go back.
    * A part is applied whole, or not at all, and once, after the one before (R5).
    * A report says of each group that moved where it stands, and the *lowest* it stood since the report before.
    * What is open is kept until the accepted min time, that of a notice, has passed it.

    Args:
        graph: segments and what feeds them.
        fronts: every registered front with its opening floor.
        shard: its own number, from 0.
        shards: how many there are.
        start: the min time of all segments at the start of the life.
        feeds: as of `Tracker`.
        closed: as of `Tracker`.
        dues: as of `Tracker`.
        orders: the merge's last order that the fronts and the closed ones have in them already.
    """

    def __init__(
        self,
        graph: Graph,
        fronts: Mapping[int, int],
        *,
        shard: int,
        shards: int,
        start: int,
        feeds: Mapping[int, Iterable[int]] | None = None,
        closed: Iterable[int] = (),
        dues: Mapping[int, Iterable[int]] | None = None,
        orders: int = 0,
    ) -> None:
        self.graph, self.shard, self.shards = graph, shard, shards
        opening = {front: round_up(max(start, floor), shard, shards) for front, floor in fronts.items()}
        self._table = Table(graph.segments, NO_LIMIT, start)
        self._fronts = Fronts(graph, opening, start=start, feeds=feeds, closed=closed)
        self._dues = Dues(graph, dues or {}, start=start)
        self._floors = Floors()
        self._min = [start] * len(graph.groups)
        """Per group: the accepted min time, as far as it is known here."""
        self._applied: dict[int, int] = {}
        """Per worker: its node time, which is its last part that was applied."""
        self._orders = orders
        self._ordered = False
        """True if an order was followed since the last report."""
        self._era = 0
        self._rebuild: Rebuild | None = None
        self._stands = [self._stand(group) for group in range(len(graph.groups))]
        self._lows: dict[int, int] = {}
        """Per group that moved since the last report: the lowest it stood."""
        self._highs: dict[int, int] = {}
        """Per segment the largest tick of an ack."""
        self._risen: dict[int, int] = {}
        """Those that have risen since the last report."""
        self._nodes: dict[int, int] = {}
        """The node times that moved since."""
        self._opened: dict[int, int] = {}
        """Fronts that were opened since, with their heartbeats."""
        self._whole = True
        """True if the next report is to be complete."""

    @classmethod
    def joining(
        cls,
        graph: Graph,
        joined: Joined,
        *,
        shard: int,
        shards: int,
        start: int,
        dues: Mapping[int, Iterable[int]] | None = None,
        workers: Iterable[int] | None = None,
    ) -> "Shard":
        """A shard as it begins with the merge's answer; with ``workers`` it takes the place of one that died."""
        made = cls(
            graph,
            joined.fronts,
            shard=shard,
            shards=shards,
            start=start,
            feeds=joined.feeds or None,
            closed=joined.closed,
            dues=dues,
            orders=joined.orders,
        )
        return made if workers is None else made.rebuilt_from(workers)

    def rebuilt_from(self, workers: Iterable[int]) -> Self:
        """Take the place of one that died: report nothing until every worker has sent its sums (R10); return itself."""
        rebuild = Rebuild(workers)
        self._rebuild = rebuild if rebuild.missing else None
        return self

    # -- messages --------------------------------------------------------------------------------------------------

    def receive(self, message: Flush | Absolute) -> None:
        """Apply a worker's part, or take its state while rebuilding; the errors are those of `Tracker.receive`."""
        if self._rebuild is not None:
            self._receive_rebuilding(self._rebuild, message)
            return
        if isinstance(message, Absolute):
            raise ProtocolError(f"worker {message.worker} reported to shard {self.shard}, which is not rebuilding")
        expected = self._applied.get(message.worker, 0) + 1
        if message.number != expected:
            if message.number < expected:
                return
            raise FlushGap(message.worker, message.number, expected)
        self._apply(message)

    def order(self, order: Order) -> None:
        """Open or close a front, as the merge has decided; an order that comes again is ignored."""
        self._refuse_while_rebuilding()
        if order.number <= self._orders:
            return
        if order.number != self._orders + 1:
            raise ProtocolError(f"shard {self.shard} got order {order.number} after order {self._orders}")
        self._orders, self._ordered = order.number, True
        front, fronts = order.front, self._fronts
        if order.floor is None:
            fronts.close(front)
        else:
            if not fronts.is_open(front):
                if front in fronts:
                    raise FrontIsClosed(front, fronts.heartbeat(front))
                fronts.open(front, round_up(order.floor, self.shard, self.shards), order.feeds)
            self._opened[front] = fronts.heartbeat(front)
        self._look(range(len(self._stands)))

    def hear(self, notice: Notice) -> None:
        """Take over what was accepted: what is below it is over in every shard."""
        self._accept(notice.min_times)

    def join(self, era: int) -> None:
        """A merge has connected, be it another process or the same one again: the next report says everything.

        One of a later era numbers its orders from 1.
        """
        if era > self._era:
            self._orders = self._orders if self._era == 0 else 0
            self._era = era
        self._whole = True

    def report(self) -> Report | None:
        """Return the moves since the last report as one; None if nothing moved, or nothing is known yet."""
        if self._rebuild is not None:
            return None
        names = [members[0] for members in self.graph.groups]
        if self._whole:
            stands = tuple((name, INT64_MIN, stand) for name, stand in zip(names, self._stands, strict=True))
            nodes, highs, floors = self._applied, self._highs, self._floors.all()
            self._floors.take_new()
        elif not (self._nodes or self._ordered):
            return None
        else:
            stands = tuple((names[group], low, self._stands[group]) for group, low in self._lows.items())
            nodes, highs, floors = self._nodes, self._risen, self._floors.take_new()
        report = Report(
            self.shard,
            self._whole,
            tuple(nodes.items()),
            self._orders,
            stands,
            tuple(highs.items()),
            floors,
            tuple(self._opened.items()),
        )
        self._lows, self._risen, self._nodes, self._opened = {}, {}, {}, {}
        self._whole = self._ordered = False
        return report

    def forget_floors(self, front: int, before_offset: int, at_most: int | None = None) -> bool:
        """Drop a front's floors below an offset, once a commit holds the label before it; see `Floors.forget`."""
        return self._floors.forget(front, before_offset, at_most)

    # -- questions -------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> tuple[int, ...]:
        """The workers that a shard being rebuilt waits for; empty once it works."""
        return () if self._rebuild is None else self._rebuild.missing

    def applied(self, worker: int) -> int:
        """A worker's node time here: its last part that was applied, or kept while rebuilding."""
        return self._applied.get(worker, 0) if self._rebuild is None else self._rebuild.number(worker)

    def holders(self) -> dict[int, Holder]:
        """Return each group's stand, by the group's first segment, where something here holds it. O(groups).

        Heartbeats and dues are rounded up: where this shard's stand is the group's min time, it is exact.
        """
        found = {}
        for members, stand in zip(self.graph.groups, self._stands, strict=True):
            if stand < NEVER:
                found[members[0]] = self._holder(members, stand)
        return found

    def check(self) -> None:
        """The invariants; simulations call it after every step."""
        self._table.check()
        self._fronts.check()
        self._dues.check()
        for tick in self._table.kept_ticks():
            assert shard_of(tick, self.shards) == self.shard, f"shard {self.shard} has tick {tick}, which is another's"
        if self._rebuild is None:
            for group, stand in enumerate(self._stands):
                assert stand == self._stand(group), f"the stand of group {group} is stale"

    # -- parts -----------------------------------------------------------------------------------------------------

    def _apply(self, flush: Flush) -> None:
        """A part, whole: everything is checked before anything changes."""
        self._table.admit(flush.acks)
        beats = self._fronts.newest(flush.heartbeats)
        for floor in flush.floors:
            self._fronts.heartbeat(floor.front)
        self._dues.admit(flush.dues, self._min)
        self._dues.apply(flush.dues)
        self._add(flush.acks)
        self._fronts.apply(beats)
        self._floors.add(flush.floors)
        self._applied[flush.worker] = self._nodes[flush.worker] = flush.number
        group_of = self.graph.group_of
        touched = {group_of(ack[0]) for ack in flush.acks}
        touched.update(group_of(due[0]) for due in flush.dues)
        for front in beats:
            touched.update(self._fronts.groups_of(front))
        self._look(touched)

    def _add(self, acks: Iterable[Ack]) -> None:
        self._table.apply(acks)
        for segment, tick, _ in acks:
            if tick > self._highs.get(segment, INT64_MIN):
                self._highs[segment] = self._risen[segment] = tick

    def _look(self, groups: Iterable[int]) -> None:
        """Look at the stands of these groups after one whole part or order."""
        for group in groups:
            stand = self._stand(group)
            if stand != self._stands[group]:
                before = self._lows.get(group, self._stands[group])
                self._stands[group] = stand
                self._lows[group] = min(before, stand)

    def _stand(self, group: int) -> int:
        ceiling, due = self._fronts.ceilings[group], self._dues.limits[group]
        stand = NEVER if ceiling is None else ceiling
        if due is not None:
            stand = min(stand, due)
        for segment in self.graph.groups[group]:
            stand = self._table.first_open(segment, stand)
        return stand

    def _holder(self, members: tuple[int, ...], stand: int) -> Holder:
        group = self.graph.group_of(members[0])
        for member in members:
            if self._table.is_open(member, stand):
                return Holder(stand, member, None)
        if self._dues.limits[group] == stand:
            segment, owner = self._dues.lowest(group)
            return Holder(stand, segment, None, owner=owner, reported=self._dues.is_reported(segment, owner))
        return Holder(stand, members[0], self._fronts.lowest(group), at_front=True)

    def _accept(self, min_times: Mapping[int, int]) -> None:
        """Min time has passed what is below, in every shard: nothing of it can be open here."""
        for segment, tick in min_times.items():
            group = self.graph.group_of(segment)
            if tick > self._table.min_time(segment):
                first = self._table.first_open(segment, tick)
                if first < tick:
                    raise TimeWentBack(segment, first, tick)
                self._table.advance(segment, tick)
                self._min[group] = max(self._min[group], tick)

    def _refuse_while_rebuilding(self) -> None:
        if self._rebuild is not None:
            raise StillRebuilding(self._rebuild.missing)

    def _receive_rebuilding(self, rebuild: Rebuild, message: Flush | Absolute) -> None:
        if isinstance(message, Flush):
            rebuild.follow(message)
        else:
            rebuild.report(message)
        if rebuild.missing:
            return
        self._rebuild = None
        self._accept(rebuild.min_times())
        for report in rebuild.reports.values():
            acks = [ack for ack in report.acks if ack[1] >= self._table.min_time(ack[0])]
            self._table.admit(acks)
            self._add(acks)
            self._fronts.restore(report.heartbeats)
            self._dues.admit(report.dues, self._min)
            self._dues.apply(report.dues)
            self._floors.add(report.floors)
            self._applied[report.worker] = report.number
        for flush in rebuild.flushes:
            self._apply(flush)
        self._look(range(len(self._stands)))
        self._whole = True
