"""The node of the stream that a `when_done` waits for: it takes no records."""

from __future__ import annotations

from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch


class ThroughNode(Node):
    """Follows a stream, for the segments upstream of it."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """No record comes here."""
        raise AssertionError("what is waited for is not taken")
