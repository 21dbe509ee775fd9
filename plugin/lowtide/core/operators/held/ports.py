"""Ports: how a step holds what several streams bring, and has it in one order."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.flow.plan.plan import Vertex


class PortsNode(Holding):
    """A step that holds the records of each port until nothing before them can come at any.

    Args:
        vertex: The step.
        ports: How many there are.
    """

    def __init__(self, vertex: Vertex, ports: int) -> None:
        super().__init__(vertex)
        self._pending = [Pending(f'step "{vertex.name}", port {port}') for port in range(ports)]

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold records."""
        self._pending[port].add(batch)
        self.hold(batch.ticks, feed)

    def first_tick(self) -> int | None:
        """The lowest tick that is held; None if nothing is."""
        return min([tick for pending in self._pending if (tick := pending.first_tick) is not None], default=None)

    def released(self, min_time: int) -> list[Batch | None]:
        """Return what each port brought below a tick, in order; None for nothing."""
        found = [pending.release(min_time) for pending in self._pending]
        return [Batch.concat(batches) if batches else None for batches in found]


def in_turn(batches: Sequence[Batch | None]) -> list[tuple[bytes, int, int]]:
    """Order key, port and index of all records, in the order of all."""
    return sorted(
        [
            (at, port, index)
            for port, batch in enumerate(batches)
            if batch is not None
            for index, at in enumerate(batch.ats)
        ]
    )
