"""The holder of min time."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide_tracker.dues import Dues
from lowtide_tracker.fronts import Fronts
from lowtide_tracker.graph import Graph
from lowtide_tracker.table import Table


@dataclass(frozen=True, slots=True)
class Holder:
    """The one thing that keeps a min time from moving; for how long, the caller knows."""

    tick: int
    """Min time now, or once the next message has come."""
    segment: int
    """The segment of the open ack, or the (first) segment that the front feeds."""
    front: int | None
    """The front whose heartbeat it is; None for an open ack, and where no front is open."""
    at_front: bool = False
    """True if fronts hold it, and not an open ack, of a frame or a hold, or a due."""
    owner: int | None = None
    """The owner with a due there, among those that send into the segment; None if it is something else."""
    reported: bool = True
    """True if that owner has reported it; if not, it may be about to be restored."""

    def __str__(self) -> str:
        if self.owner is not None:
            what = f"has something due at tick {self.tick}" if self.reported else "has not reported yet what is due"
            return f"owner {self.owner} of segment {self.segment} {what}"
        if not self.at_front:
            return f"segment {self.segment} has an open ack at tick {self.tick}"
        if self.front is None:
            return f"no front that feeds segment {self.segment} is open; it stays at tick {self.tick}"
        return f"front {self.front} may still label at tick {self.tick}"


def holder_of(group: int, graph: Graph, min_times: Sequence[int], table: Table, fronts: Fronts, dues: Dues) -> Holder:
    """Follow what a group waits for to its root: an open ack, something due, or a front.

    Args:
        group: whose min time it is.
        graph: segments and what feeds them.
        min_times: by group.
        table: the open acks.
        fronts: the heartbeats.
        dues: what is due.
    """
    while True:
        tick = min_times[group]
        for member in graph.groups[group]:
            if table.is_open(member, tick):
                return Holder(tick, member, None)
        if dues.limits[group] == tick:
            segment, owner = dues.lowest(group)
            return Holder(tick, segment, None, owner=owner, reported=dues.is_reported(segment, owner))
        inbound = min(graph.inbound[group], key=min_times.__getitem__, default=None)
        ceiling = fronts.ceilings[group]
        if inbound is None or (ceiling is not None and ceiling <= min_times[inbound]):
            assert ceiling is not None, "a group that no group feeds has a ceiling"
            return Holder(ceiling, graph.groups[group][0], fronts.lowest(group), at_front=True)
        group = inbound
