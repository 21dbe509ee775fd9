"""Segments and what feeds them."""

from collections.abc import Iterable, Mapping

from lowtide_tracker.errors import GraphError, UnknownSegment

MAX_SEGMENT = 0xFFFF
"""The largest number of a segment: on the wire it is a u16."""


class Graph:
    """Segments, each with the segments that feed it, and their groups.

    Segments on one cycle form a *group* and share one min time: the smallest non-zero tick of any of them. *Inbound*
    then means: from outside the group.

    Example:
        >>> graph = Graph({1: [], 2: [1, 3], 3: [2], 4: [3]})
        >>> graph.groups
        ((1,), (2, 3), (4,))
        >>> graph.inbound
        ((), (0,), (1,))
    """

    def __init__(self, inbound: Mapping[int, Iterable[int]]) -> None:
        feeds = {segment: tuple(sources) for segment, sources in inbound.items()}
        _check(feeds)
        above = {segment: _above(segment, feeds) for segment in feeds}
        members: dict[frozenset[int], list[int]] = {}
        for segment in sorted(feeds):
            members.setdefault(above[segment], []).append(segment)
        # What feeds a group has strictly fewer segments above it than the group, so this order is topological.
        ordered = sorted(members.items(), key=lambda group: (len(group[0]), group[1][0]))

        self.groups: tuple[tuple[int, ...], ...] = tuple(tuple(group) for _, group in ordered)
        """Groups of segments in topological order: what feeds a group stands before it."""
        self.segments: tuple[int, ...] = tuple(segment for group in self.groups for segment in group)
        """All segments, in the order of their groups."""
        self._group_of = {segment: at for at, group in enumerate(self.groups) for segment in group}
        self.inbound: tuple[tuple[int, ...], ...] = tuple(
            tuple(sorted({self._group_of[source] for segment in group for source in feeds[segment]} - {at}))
            for at, group in enumerate(self.groups)
        )
        """For each group the groups that feed it from outside, as places in `groups`."""
        self.sources: tuple[int, ...] = tuple(
            segment for at, group in enumerate(self.groups) if not self.inbound[at] for segment in group
        )
        """The segments that nothing feeds from outside their group: where fronts put their records by default."""

    def group_of(self, segment: int) -> int:
        """The place of a segment's group in `groups`; ``UnknownSegment`` if there is no such segment."""
        group = self._group_of.get(segment)
        if group is None:
            raise UnknownSegment(segment, self.segments)
        return group

    def check(self, segments: Iterable[int]) -> None:
        """Raise ``UnknownSegment`` unless all of these are there."""
        for segment in segments:
            self.group_of(segment)


def _check(feeds: Mapping[int, tuple[int, ...]]) -> None:
    if not feeds:
        raise GraphError("a graph needs at least one segment: a flow's first level receives its frames in segment 1")
    for segment, sources in feeds.items():
        if not 0 <= segment <= MAX_SEGMENT:
            raise GraphError(f"segment {segment}: a segment's number must be 0 to {MAX_SEGMENT}")
        unknown = [source for source in sources if source not in feeds]
        if unknown:
            raise GraphError(f"segment {segment} is fed by segment {unknown[0]}, which is not in the graph: add it")


def _above(segment: int, feeds: Mapping[int, tuple[int, ...]]) -> frozenset[int]:
    """The segment and all from which records can reach it; equal for two segments only if they are on one cycle."""
    seen, left = {segment}, [segment]
    while left:
        for source in feeds[left.pop()]:
            if source not in seen:
                seen.add(source)
                left.append(source)
    return frozenset(seen)
