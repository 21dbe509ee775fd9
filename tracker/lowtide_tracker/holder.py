"""The answer to "who holds min time?"."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide_tracker.fronts import Fronts
from lowtide_tracker.graph import Graph
from lowtide_tracker.table import Table


@dataclass(frozen=True, slots=True)
class Holder:
    """The one thing that keeps a min time from moving; for how long, the caller knows."""

    tick: int
    """Where min time stands, or will stand once the next message has come."""
    segment: int
    """Where an ack is open, or the (first) segment that the front feeds."""
    front: int | None
    """The front whose heartbeat it is; None for an open ack, and where no front is open."""
    at_front: bool = False
    """Whether fronts hold it, rather than an open ack: that of a frame or of a hold."""

    def __str__(self) -> str:
        if not self.at_front:
            return f"segment {self.segment} has an open ack at tick {self.tick}"
        if self.front is None:
            return f"no front that feeds segment {self.segment} is open; it stays at tick {self.tick}"
        return f"front {self.front} may still label at tick {self.tick}"


def holder_of(group: int, graph: Graph, min_times: Sequence[int], table: Table, fronts: Fronts) -> Holder:
    """Follow what a group waits for to its root: an open ack, or a front.

    Args:
        group: whose min time it is.
        graph: segments and what feeds them.
        min_times: by group.
        table: the open acks.
        fronts: the heartbeats.
    """
    while True:
        tick = min_times[group]
        for member in graph.groups[group]:
            if table.is_open(member, tick):
                return Holder(tick, member, None)
        inbound = min(graph.inbound[group], key=min_times.__getitem__, default=None)
        ceiling = fronts.ceilings[group]
        if inbound is None or (ceiling is not None and ceiling <= min_times[inbound]):
            assert ceiling is not None, "a group that no group feeds has a ceiling"
            return Holder(ceiling, graph.groups[group][0], fronts.lowest(group), at_front=True)
        group = inbound
