"""`map`: one record for each."""

from __future__ import annotations

from typing import Any

from lowtide.operators.batch import Batch
from lowtide.operators.per_record import PerRecord, said_type
from lowtide.schema import schema_of
from lowtide.steps import Function


class MapOperator(PerRecord):
    """Replaces every record by the function's result; meta stays."""

    def __init__(self, function: Function, gives: type) -> None:
        self.function = function
        self._schema = schema_of(gives)
        self._gives = gives

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
        return Batch(self._schema, batch.meta, rows=results)
