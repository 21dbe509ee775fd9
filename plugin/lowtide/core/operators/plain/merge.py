"""`merge`: several streams in one; the port a record came in by goes into its trace (R4)."""

from __future__ import annotations

from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import SIGN_32, step_id, with_trace
from lowtide.flow.plan.plan import Vertex


class MergeNode(Node):
    """Folds the port's id into the trace: by hash unit, before the first exchange by front.

    Args:
        vertex: The step.
        job: The flow's name.
    """

    def __init__(self, vertex: Vertex, job: str) -> None:
        super().__init__(vertex)
        self._job = job
        self._ids: dict[tuple[int, int], int] = {}

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Pass the records on with this port in their traces."""
        numbers = batch.units or [int.from_bytes(at[8:12], "big") - SIGN_32 for at in batch.ats]
        ats = [with_trace(at, self._id(port, number)) for at, number in zip(batch.ats, numbers, strict=True)]
        self.pass_on(batch.with_ats(ats), feed)

    def _id(self, port: int, number: int) -> int:
        """The id of a port for one hash unit or front: one hash, once."""
        id_ = self._ids.get((port, number))
        if id_ is None:
            id_ = self._ids[port, number] = step_id(self._job, self.vertex.name, port, number)
        return id_
