"""The announcements of a tracker: the min times of its life, the floors, and the last request."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from lowtide_tracker.floors import Floors
from lowtide_tracker.graph import Graph
from lowtide_tracker.messages import Notice, Request


class Announced(ABC):
    """The announcements of `Tracker` and `Merge`, notice by notice; they say when.

    Args:
        graph: segments and what feeds them.
        start: the min time of all segments at the start of the life.
        era: how many processes have announced for this life, with this one.
    """

    def __init__(self, graph: Graph, start: int, era: int) -> None:
        self.graph = graph
        self.era = era
        self._floors = Floors()
        self._min = [start] * len(graph.groups)
        """Per group: the min time of all its segments."""
        self._notice = 0
        self._request: Request | None = None

    def forget_floors(self, front: int, before_offset: int, at_most: int | None = None) -> bool:
        """Drop a front's floors below an offset, once a commit holds the label before it; see `Floors.forget`."""
        return self._floors.forget(front, before_offset, at_most)

    def request(self, number: int) -> Notice:
        """Ask every worker to keep what it holds below the current global min time; return the notice with the request.

        It is a separate notice, so no receiver has pruned what it asks for (R14). Workers that join later also get
        the last one; a tracker process that dies takes it with it.

        Raises:
            StillRebuilding: what was announced is not known yet.
        """
        self._refuse_while_rebuilding()
        self._request = Request(number, self.global_min)
        return self._next_notice({}, self._request)

    @property
    def global_min(self) -> int:
        """The smallest min time of all segments."""
        return min(self._min)

    @property
    def floors(self) -> int:
        """The number of floors kept."""
        return len(self._floors)

    @property
    @abstractmethod
    def missing(self) -> tuple[int, ...]:
        """The workers or shards that are waited for before anything is announced; empty once it works."""

    def min_time(self, segment: int) -> int:
        """A segment's min time; ``UnknownSegment``."""
        return self._min[self.graph.group_of(segment)]

    def min_times(self) -> dict[int, int]:
        """Every segment's min time, in topological order."""
        return {segment: self.min_time(segment) for segment in self.graph.segments}

    def whole_notice(self) -> Notice:
        """All that was announced in this era and every floor kept, for a subscriber that joins; ``StillRebuilding``."""
        self._refuse_while_rebuilding()
        floors = self._floors.all()
        return Notice(self.era, self._notice, 0, self.min_times(), self.global_min, floors, self._request)

    def _next_notice(self, moved: Mapping[int, int], request: Request | None = None) -> Notice:
        self._notice += 1
        floors = self._floors.take_new()
        return Notice(self.era, self._notice, self._notice - 1, moved, self.global_min, floors, request)

    def _group_of(self, segment: int | None) -> int:
        """The group of a segment; without one, the first of the smallest min time."""
        if segment is not None:
            return self.graph.group_of(segment)
        return min(range(len(self._min)), key=self._min.__getitem__)

    @abstractmethod
    def _refuse_while_rebuilding(self) -> None:
        """Raise ``StillRebuilding`` while it is not known what was announced."""
