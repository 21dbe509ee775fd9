"""`filter`: the records for which a function says True."""

from __future__ import annotations

from typing import Any

from lowtide.core.operators.batch import Batch
from lowtide.core.operators.per_record import PerRecord, said_type
from lowtide.flow.plan import Vertex
from lowtide.flow.steps import Filter


class FilterNode(PerRecord):
    """Keeps records in their places."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        assert isinstance(vertex.step, Filter)
        self.function = vertex.step.function

    def holds(self, results: list[Any]) -> bool:
        """Whether all results are bool."""
        return set(map(type, results)) <= {bool}

    def fault(self, result: Any) -> str | None:
        """What is wrong with one result."""
        return not_bool(result)

    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Take the records with True."""
        return batch if all(results) else batch.where(results)


def not_bool(result: Any) -> str | None:
    """What is wrong with a predicate's result."""
    return None if type(result) is bool else f"returned {said_type(result)}, expected bool"
