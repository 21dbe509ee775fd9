"""The registered fronts and the ceilings that their heartbeats put on the groups they feed."""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush, heapreplace

from lowtide_tracker.errors import FrontIsClosed, HeartbeatWentBack, UnknownFront
from lowtide_tracker.graph import Graph


class Fronts:
    """Every registered front with its newest heartbeat, connected or not.

    A group's *ceiling* is the smallest heartbeat of the open fronts that feed it. A source group (one that no other
    group feeds) always has one: ``start`` before its first front opens, and the last heartbeat of the last one closed
    after that one has closed. Other groups have a ceiling only while a front feeds them.

    Args:
        graph: segments and groups.
        opening: each registered front with its opening floor; its first heartbeat is ``max(start, floor)``.
        start: the min time that the segments begin with.
        feeds: the segments that a front feeds, where these are not `Graph.sources`; none at all for a front that does
            not count in any minimum, as that of a feedback topic.
        closed: registered fronts that were closed for good.
    """

    def __init__(
        self,
        graph: Graph,
        opening: Mapping[int, int],
        *,
        start: int,
        feeds: Mapping[int, Iterable[int]] | None = None,
        closed: Iterable[int] = (),
    ) -> None:
        self._graph = graph
        self._heartbeats: dict[int, int] = {}
        self._groups_of: dict[int, tuple[int, ...]] = {}
        """The groups that a front feeds, or fed until it was closed."""
        self._open: set[int] = set()
        self._feeding: tuple[dict[int, int], ...] = tuple({} for _ in graph.groups)
        """Per group: the heartbeats of the open fronts that feed it."""
        self._heaps: tuple[list[tuple[int, int]], ...] = tuple([] for _ in graph.groups)
        """Per group: the heap of (tick, front) with one entry of each; its tick may be an older heartbeat, which is no
        larger than the newest. An entry of a front that was closed is dropped once it comes to the top."""
        self.ceilings: list[int | None] = [None if inbound else start for inbound in graph.inbound]
        """Per group, in `Graph.groups`' order; None where no front bounds it."""
        for front, floor in opening.items():
            self.open(front, max(start, floor), None if feeds is None else feeds.get(front))
        # A register does not say which was closed last: the one that got furthest leaves its ceiling, as in `restore`.
        for front in sorted(closed, key=self.heartbeat):
            self.close(front)

    def __contains__(self, front: int) -> bool:
        return front in self._heartbeats

    def heartbeat(self, front: int) -> int:
        """A front's newest heartbeat, or its last one if it is closed; ``UnknownFront`` if it was never opened."""
        heartbeat = self._heartbeats.get(front)
        if heartbeat is None:
            raise UnknownFront(front)
        return heartbeat

    def groups_of(self, front: int) -> tuple[int, ...]:
        """The groups that a front feeds, or fed until it was closed."""
        return self._groups_of[front]

    def is_open(self, front: int) -> bool:
        """Return whether a front was opened and not closed."""
        return front in self._open

    def open(self, front: int, tick: int, feeds: Iterable[int] | None = None) -> None:
        """Open a front that labels nothing below ``tick``."""
        segments = self._graph.sources if feeds is None else feeds
        groups = tuple(sorted({self._graph.group_of(segment) for segment in segments}))
        self._heartbeats[front] = tick
        self._groups_of[front] = groups
        self._open.add(front)
        for group in groups:
            self._feeding[group][front] = tick
            heappush(self._heaps[group], (tick, front))
            self._set_ceiling(group)

    def close(self, front: int) -> None:
        """Close a front for good; closing it again does nothing. The last one of a source group leaves its ceiling."""
        heartbeat = self.heartbeat(front)
        if front not in self._open:
            return
        self._open.remove(front)
        for group in self._groups_of[front]:
            del self._feeding[group][front]
            if self._feeding[group]:
                self._set_ceiling(group)
            elif self._graph.inbound[group]:
                self.ceilings[group] = None
            else:
                self.ceilings[group] = heartbeat

    def newest(self, heartbeats: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Check the heartbeats of a flush, changing nothing, and return the newest of each front for `apply`.

        Raises:
            UnknownFront: the front was never opened.
            FrontIsClosed: it was closed for good.
            HeartbeatWentBack: it is lower than the one before.
        """
        newest: dict[int, int] = {}
        for front, tick in heartbeats:
            before = newest.get(front)
            if before is None:
                before = self.heartbeat(front)
                if front not in self._open:
                    raise FrontIsClosed(front, before)
            if tick < before:
                raise HeartbeatWentBack(front, tick, before)
            newest[front] = tick
        return newest

    def apply(self, newest: Mapping[int, int]) -> None:
        """Take over what `newest` allowed. O(log fronts) for each, on average."""
        for front, tick in newest.items():
            before = self._heartbeats[front]
            if tick == before:
                continue
            self._heartbeats[front] = tick
            for group in self._groups_of[front]:
                self._feeding[group][front] = tick
                if self.ceilings[group] == before:
                    self._set_ceiling(group)

    def restore(self, heartbeats: Iterable[tuple[int, int]]) -> None:
        """Take over heartbeats that a worker reports to a new tracker: the largest counts.

        In which order fronts were closed is not known any more. Where none is left open, the ceiling is the largest
        last heartbeat, which is safe, as none of them labels anything, and no less than what was announced.
        """
        for front, tick in heartbeats:
            if tick <= self.heartbeat(front):
                continue
            if front in self._open:
                self.apply({front: tick})
                continue
            self._heartbeats[front] = tick
            for group in self._groups_of[front]:
                ceiling = self.ceilings[group]
                if ceiling is not None and not self._feeding[group]:
                    self.ceilings[group] = max(ceiling, tick)

    def lowest(self, group: int) -> int | None:
        """The front that holds a group's ceiling: the smallest number among those with the smallest heartbeat."""
        feeding = self._feeding[group]
        return min(feeding, key=lambda front: (feeding[front], front)) if feeding else None

    def check(self) -> None:
        """Invariant: ceilings are the minima they say they are."""
        for group, feeding in enumerate(self._feeding):
            if feeding:
                assert self.ceilings[group] == min(feeding.values()), f"the ceiling of group {group} is stale"
            entries = {front: tick for tick, front in self._heaps[group] if front in feeding}
            assert entries.keys() == feeding.keys(), f"the heap of group {group} has other fronts"
            for front, tick in feeding.items():
                assert self._heartbeats[front] == tick, f"front {front} has two heartbeats"
                assert entries[front] <= tick, f"the heap of group {group} is ahead of front {front}"

    def _set_ceiling(self, group: int) -> None:
        heap, feeding = self._heaps[group], self._feeding[group]
        while True:
            tick, front = heap[0]
            newest = feeding.get(front)
            if newest is None:
                heappop(heap)
            elif newest != tick:
                heapreplace(heap, (newest, front))
            else:
                self.ceilings[group] = tick
                return
