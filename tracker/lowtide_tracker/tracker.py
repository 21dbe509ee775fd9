"""The tracker: of every segment, the tick below which nothing is left, for good.

Worker 1 labels a record of front 7 with tick 3 and sends it to worker 2, which receives in segment 1. Each of them
folds the frame's value once; in between, the frame is in flight and min time stays at its tick. No clock, no socket:
messages in, notices out.

    >>> from lowtide_tracker import Graph, LocalTracker, Tracker
    >>> tracker = Tracker(Graph({1: []}), {7: 0}, start=0, capacity_ticks=8)
    >>> sender, receiver = LocalTracker(1, incarnation=1), LocalTracker(2, incarnation=1)
    >>> value = sender.new_value()
    >>> sender.fold(1, [3], value)
    >>> sender.heartbeat(7, 5)
    >>> [notice] = tracker.receive(sender.flush())
    >>> notice.min_times
    {1: 3}
    >>> str(tracker.holder())
    'segment 1 has an open ack at tick 3'
    >>> receiver.fold(1, [3], value)
    >>> [notice] = tracker.receive(receiver.flush())
    >>> notice.number, notice.min_times
    (2, {1: 5})
    >>> str(tracker.holder())
    'front 7 may still label at tick 5'
"""

from collections.abc import Iterable, Mapping
from typing import Self

from lowtide_tracker.announced import Announced
from lowtide_tracker.dues import Dues
from lowtide_tracker.errors import FlushGap, FrontIsClosed, ProtocolError, StillRebuilding
from lowtide_tracker.fronts import Fronts
from lowtide_tracker.graph import Graph
from lowtide_tracker.holder import Holder, holder_of
from lowtide_tracker.messages import Absolute, Flush, Notice, Sum
from lowtide_tracker.rebuild import Rebuild
from lowtide_tracker.table import Table


class Tracker(Announced):
    """The centralised tracker of one life.

    Its laws:

    * A group's min time is the smallest of the first non-zero tick of its segments, the heartbeats of the open fronts
      that feed it, the min times of the groups that feed it (R7) and what is due into its segments (R6b). It never
      goes back.
    * A flush is applied whole, or not at all, and once, after the one before (R5).
    * A notice is made only when a min time moved, or for a request; it names all that moved, and the new floors.

    An exception other than `StillRebuilding` ends the life. A flush that raises one has changed nothing.

    Args:
        graph: segments and what feeds them.
        fronts: every registered front with its opening floor, a tick (R3).
        start: the min time of all segments at the start of the life: 0, or the recovered commit's.
        capacity_ticks: how far acks may lie ahead of their segment's min time.
        feeds: the segments a front feeds, where these are not `Graph.sources`.
        closed: the fronts among ``fronts`` that were closed for good.
        dues: per segment the owners that tell what is due; each counts with ``start`` until it has (R6b).
        era: how many tracker processes this life has had, with this one.
    """

    def __init__(
        self,
        graph: Graph,
        fronts: Mapping[int, int],
        *,
        start: int,
        capacity_ticks: int,
        feeds: Mapping[int, Iterable[int]] | None = None,
        closed: Iterable[int] = (),
        dues: Mapping[int, Iterable[int]] | None = None,
        era: int = 1,
    ) -> None:
        super().__init__(graph, start, era)
        self._table = Table(graph.segments, capacity_ticks, start)
        self._fronts = Fronts(graph, fronts, start=start, feeds=feeds, closed=closed)
        self._dues = Dues(graph, dues or {}, start=start)
        self._applied: dict[int, int] = {}
        """Per worker: its last flush that was applied."""
        self._rebuild: Rebuild | None = None

    def rebuilt_from(self, workers: Iterable[int]) -> Self:
        """Take the place of a process that died: announce nothing until every worker has reported; return itself.

        It was made of the front register as it is now, of ``start``, ``graph`` and ``dues`` as at the start of the
        life, and of an ``era`` above that of the process before; ``workers`` are all of the life's register. Its first
        notice is number 1 of this era and says everything.
        """
        rebuild = Rebuild(workers)
        self._rebuild = rebuild if rebuild.missing else None
        return self

    # -- messages --------------------------------------------------------------------------------------------------

    def receive(self, message: Flush | Absolute | Sum) -> list[Notice]:
        """Apply a worker's flush or a relay's sum, or take a report while rebuilding; return at most one notice.

        Cost: about half a microsecond per ack, and one or two per group that may move.

        Raises:
            FlushGap: a flush of this worker is missing, or in a sum and applied already.
            StillRebuilding: a sum has to wait.
            TableFull, TimeWentBack, UnknownSegment: an ack is out of its segment's bounds.
            HeartbeatWentBack, UnknownFront, FrontIsClosed: a heartbeat is out of its front's.
            DuePassed, UnknownOwner, UnknownSegment: a due is out of its owner's.
            ProtocolError: a report where none was asked for.
        """
        if isinstance(message, Sum):
            self._refuse_while_rebuilding()
            for worker, first, _ in message.parts:
                if first != self._applied.get(worker, 0) + 1:
                    raise FlushGap(worker, first, self._applied.get(worker, 0) + 1)
            self._apply(message)
            self._applied.update((worker, last) for worker, _, last in message.parts)
            return self._advance()
        if self._rebuild is not None:
            return self._receive_rebuilding(self._rebuild, message)
        if isinstance(message, Absolute):
            raise ProtocolError(f"worker {message.worker} reported to a tracker that is not rebuilding")
        expected = self._applied.get(message.worker, 0) + 1
        if message.number != expected:
            if message.number < expected:
                return []
            raise FlushGap(message.worker, message.number, expected)
        self._apply(message)
        self._applied[message.worker] = message.number
        return self._advance()

    def open_front(self, front: int, floor: int, feeds: Iterable[int] | None = None) -> int:
        """Open a front and return the tick below which it labels nothing (R3).

        It is at least any min time that was announced of the segments its records can come to. Others may be far ahead,
        as where all that feeds them has ended.

        Asking for an open front again changes nothing and answers with its heartbeat if that is larger.

        Raises:
            FrontIsClosed: it was closed for good.
            StillRebuilding: what was announced is not known yet.
        """
        self._refuse_while_rebuilding()
        if self._fronts.is_open(front):
            return max(floor, self._fronts.heartbeat(front))
        if front in self._fronts:
            raise FrontIsClosed(front, self._fronts.heartbeat(front))
        fed = self.graph.sources if feeds is None else tuple(feeds)
        announced = [self.min_time(segment) for segment in fed] or self._min
        tick = max(floor, *announced)
        self._fronts.open(front, tick, fed)
        return tick

    def close_front(self, front: int) -> list[Notice]:
        """Close a front for good, after the last flush that speaks of it was applied; closing it twice is once."""
        self._refuse_while_rebuilding()
        self._fronts.close(front)
        return self._advance()

    # -- questions -------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> tuple[int, ...]:
        """The workers that a tracker being rebuilt waits for; empty once it works."""
        return () if self._rebuild is None else self._rebuild.missing

    def applied(self, worker: int) -> int:
        """The number of a worker's last flush that was applied, or kept while rebuilding; 0 before the first."""
        return self._applied.get(worker, 0) if self._rebuild is None else self._rebuild.number(worker)

    def holder(self, segment: int | None = None) -> Holder:
        """Find the root holder of a segment's min time, or of the global one; ``StillRebuilding`` names workers."""
        self._refuse_while_rebuilding()
        return holder_of(self._group_of(segment), self.graph, self._min, self._table, self._fronts, self._dues)

    def check(self) -> None:
        """The invariants; simulations call it after every step. O(segments x capacity)."""
        self._table.check()
        self._fronts.check()
        self._dues.check()
        for group, members in enumerate(self.graph.groups):
            tick, ceiling, due = self._min[group], self._fronts.ceilings[group], self._dues.limits[group]
            for segment in members:
                assert self._table.min_time(segment) == tick, f"segment {segment} is not at its group's min time"
            for inbound in self.graph.inbound[group]:
                assert tick <= self._min[inbound], f"group {group} has passed group {inbound}, which feeds it"
            assert ceiling is None or tick <= ceiling, f"group {group} has passed its fronts"
            assert due is None or tick <= due, f"group {group} has passed what is due"

    # -- rules -----------------------------------------------------------------------------------------------------

    def _apply(self, flush: Flush | Sum) -> None:
        """A flush or a sum of some, whole: everything is checked before anything changes."""
        self._table.admit(flush.acks)
        heartbeats = self._fronts.newest(flush.heartbeats)
        for floor in flush.floors:
            self._fronts.heartbeat(floor.front)
        if flush.dues:
            self._dues.admit(flush.dues, self._min)
            self._dues.apply(flush.dues)
        self._table.apply(flush.acks)
        self._fronts.apply(heartbeats)
        self._floors.add(flush.floors)

    def _move(self) -> dict[int, int]:
        """Move every group's min time as far as it may go; return the segments that moved, in topological order."""
        moved: dict[int, int] = {}
        ceilings, dues = self._fronts.ceilings, self._dues.limits if self._dues.expected else None
        for group, inbound in enumerate(self.graph.inbound):
            limit = ceilings[group]
            if dues is not None:
                due = dues[group]
                if due is not None and (limit is None or due < limit):
                    limit = due
            for source in inbound:
                if limit is None or self._min[source] < limit:
                    limit = self._min[source]
            if limit is None or limit <= self._min[group]:
                continue
            members, tick = self.graph.groups[group], limit
            # Of a cycle that one segment holds, the others are not searched again and again.
            if len(members) > 1 and any(self._table.is_open(segment, self._min[group]) for segment in members):
                continue
            for segment in members:
                tick = self._table.first_open(segment, tick)
            if tick > self._min[group]:
                self._set_min(group, tick)
                moved.update(dict.fromkeys(members, tick))
        return moved

    def _advance(self) -> list[Notice]:
        moved = self._move()
        return [self._next_notice(moved)] if moved else []

    def _set_min(self, group: int, tick: int) -> None:
        self._min[group] = tick
        for segment in self.graph.groups[group]:
            self._table.advance(segment, tick)

    def _refuse_while_rebuilding(self) -> None:
        if self._rebuild is not None:
            raise StillRebuilding(self._rebuild.missing)

    def _receive_rebuilding(self, rebuild: Rebuild, message: Flush | Absolute) -> list[Notice]:
        if isinstance(message, Flush):
            rebuild.follow(message)
        else:
            rebuild.report(message)
        if rebuild.missing:
            return []
        self._rebuild = None
        heard = rebuild.min_times()
        for group, members in enumerate(self.graph.groups):
            self._set_min(group, max(self._min[group], *(heard.get(segment, self._min[group]) for segment in members)))
        for report in rebuild.reports.values():
            self._take_over(report)
        for flush in rebuild.flushes:
            self._apply(flush)
            self._applied[flush.worker] = flush.number
        self._move()
        self._notice = 1
        self._floors.take_new()
        return [self.whole_notice()]

    def _take_over(self, report: Absolute) -> None:
        """Add a worker's sums; those below min time are zero over all workers, and left out."""
        acks = [ack for ack in report.acks if ack[1] >= self.min_time(ack[0])]
        self._table.admit(acks)
        self._table.apply(acks)
        self._fronts.restore(report.heartbeats)
        self._dues.admit(report.dues, self._min)
        self._dues.apply(report.dues)
        self._floors.add(report.floors)
        self._applied[report.worker] = report.number
