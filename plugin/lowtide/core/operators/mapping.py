"""`map`: one record for each."""

from __future__ import annotations

from typing import Any

from lowtide.core.operators.batch import Batch
from lowtide.core.operators.per_record import PerRecord, said_type
from lowtide.flow.plan import Vertex
from lowtide.flow.steps import Map


class MapNode(PerRecord):
    """Replaces every record by the function's result, in the same place."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        assert isinstance(vertex.step, Map)
        self.function = vertex.step.function
        self._gives = vertex.gives

    def holds(self, results: list[Any]) -> bool:
        """Whether all results are of the type itself; a subclass would not come back from an exchange."""
        return set(map(type, results)) <= {self._gives}

    def fault(self, result: Any) -> str | None:
        """What is wrong with one result."""
        if type(result) is self._gives:
            return None
        return f"returned {said_type(result)}, expected {self._gives.__qualname__}"

    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Put the results in place of the records."""
        return batch.with_rows(results)
