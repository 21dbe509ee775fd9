"""What a `when_done` waits for: it stands there, and nothing comes to it."""

from __future__ import annotations

from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch

__all__ = ["ThroughNode"]


class ThroughNode(Node):
    """Stands behind a stream for the segments that this stands behind."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """No record comes here."""
        raise AssertionError("what is waited for is not taken")
