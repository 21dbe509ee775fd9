"""`connect`: keyed streams of any types in one, in order, for scans that tell their records apart."""

from __future__ import annotations

from lowtide.core.operators.held.ports import PortsNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch


class ConnectNode(PortsNode):
    """Passes on what comes at all ports, in one order, once nothing before it can come."""

    def advance(self, min_time: int, feed: Feed) -> None:
        """Pass on everything below the level's min time."""
        batches = [batch for batch in self.released(min_time) if batch is not None]
        if batches:
            self.pass_on(Batch.concat(batches).in_order(), feed)
