"""A watcher sees where records are in a worker's core; it changes nothing, and without one the core pays nothing.

Of each record it sees, in this order: that it `admits` or `takes` it, that it `sends` what came of it to another worker
or that this `waits` before a sink, and that it `gives` it to the sink, where it becomes `durable`. After `gone` at a
tick it sees no more of records below it but that they become durable.
"""

from __future__ import annotations

from typing import Protocol

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import Bundle


class Watcher(Protocol):
    """Sees the records of one worker; called for batches, in the thread of the core."""

    def admits(self, rows: SourceRows) -> None:
        """Note that labelled messages go into the flow."""

    def takes(self, batch: Batch) -> None:
        """Note that the steps take records of other workers."""

    def sends(self, batch: Batch) -> None:
        """Note that records and tombstones leave for another worker."""

    def waits(self, sink: int, batch: Batch) -> None:
        """Note that records and tombstones come to the barrier before a sink."""

    def gives(self, sink: int, bundle: Bundle) -> None:
        """Note that a bundle goes to its sink."""

    def durable(self, sink: int, lane: int) -> None:
        """Note that the lane's bundle is durable in its sink."""

    def gone(self, below: int) -> None:
        """Note that all records below a tick have left this worker: sent, given to sinks, or dropped."""
