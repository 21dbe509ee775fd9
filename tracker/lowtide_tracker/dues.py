"""The due ticks: the smallest ones at which a worker will send into a segment without further input (R6b)."""

from collections.abc import Iterable, Mapping

from lowtide_tracker.errors import DuePassed, UnknownOwner
from lowtide_tracker.fields import MAX_OWNER, Due
from lowtide_tracker.graph import Graph


class Dues:
    """The newest due of every registered owner, reported or not.

    A group's *limit* is the smallest due of the owners that send into its segments; its min time is never above it. An
    owner that has reported nothing yet counts with ``start``: it may be about to be restored.

    Args:
        graph: segments and groups.
        owners: per segment those that may tell dues for it.
        start: the min time that the segments begin with.
    """

    def __init__(self, graph: Graph, owners: Mapping[int, Iterable[int]], *, start: int) -> None:
        self._graph = graph
        self._ticks: tuple[dict[tuple[int, int], int | None], ...] = tuple({} for _ in graph.groups)
        """Per group: (segment, owner) -> its due; None where nothing is."""
        self._unreported: set[tuple[int, int]] = set()
        self.expected = bool(owners)
        """True if there are owners."""
        self.limits: list[int | None] = [None for _ in graph.groups]
        """Per group, in `Graph.groups`' order; None where nothing is due."""
        for segment, those in owners.items():
            group = graph.group_of(segment)
            for owner in those:
                if not 0 <= owner <= MAX_OWNER:
                    raise ValueError(f"owner {owner} of segment {segment}: an owner's number must be 0 to {MAX_OWNER}")
                self._ticks[group][segment, owner] = start
                self._unreported.add((segment, owner))
                self.limits[group] = start

    def admit(self, dues: Iterable[Due], min_times: list[int]) -> None:
        """Check a flush's dues, changing nothing, before they go to `apply`.

        Args:
            dues: the flush's.
            min_times: by group.

        Raises:
            UnknownSegment: there is no such segment.
            UnknownOwner: it was not registered for the segment.
            DuePassed: min time is above it.
        """
        for segment, owner, tick in dues:
            group = self._graph.group_of(segment)
            if (segment, owner) not in self._ticks[group]:
                raise UnknownOwner(segment, owner)
            if tick is not None and tick < min_times[group]:
                raise DuePassed(segment, owner, tick, min_times[group])

    def apply(self, dues: Iterable[Due]) -> None:
        """Take over what `admit` has let in. O(owners of the segment) for one that was the smallest."""
        for segment, owner, tick in dues:
            group = self._graph.group_of(segment)
            ticks, limit = self._ticks[group], self.limits[group]
            before = ticks[segment, owner]
            ticks[segment, owner] = tick
            self._unreported.discard((segment, owner))
            if tick is not None and (limit is None or tick <= limit):
                self.limits[group] = tick
            elif before == limit:
                self.limits[group] = _smallest(ticks.values())

    def lowest(self, group: int) -> tuple[int, int]:
        """The (segment, owner) that holds a group's limit: the smallest among those with the smallest due."""
        limit = self.limits[group]
        return min(due for due, tick in self._ticks[group].items() if tick == limit)

    def is_reported(self, segment: int, owner: int) -> bool:
        """Return whether a registered owner has reported its dues."""
        return (segment, owner) not in self._unreported

    def check(self) -> None:
        """Invariant: limits are the minima they say they are."""
        for group, ticks in enumerate(self._ticks):
            assert self.limits[group] == _smallest(ticks.values()), f"the limit of group {group} is stale"


def _smallest(ticks: Iterable[int | None]) -> int | None:
    return min([tick for tick in ticks if tick is not None], default=None)
