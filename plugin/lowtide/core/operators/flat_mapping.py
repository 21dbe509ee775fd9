"""`flat_map`: any number of records for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from lowtide.core.operators.batch import Batch
from lowtide.core.operators.order import TAIL_BYTES
from lowtide.core.operators.per_record import PerRecord, said_type
from lowtide.flow.plan import Vertex
from lowtide.flow.steps import FlatMap


class FlatMapNode(PerRecord):
    """Replaces every record by the elements of the function's result, numbered from 1 in their child paths (R4)."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        assert isinstance(vertex.step, FlatMap)
        self.function = vertex.step.function
        self._gives = vertex.gives

    def calls(self, rows: Iterator[Any]) -> Iterator[list[Any]]:
        """Each result as a list, so that what a generator raises counts for its record."""
        return map(list, map(self.function, rows))

    def holds(self, results: list[Any]) -> bool:
        """Whether all elements are of the type itself."""
        return set(map(type, chain.from_iterable(results))) <= {self._gives}

    def fault(self, result: Any) -> str | None:
        """What is wrong with the elements of one record."""
        wrong = [element for element in result if type(element) is not self._gives]
        return f"gave {said_type(wrong[0])}, expected {self._gives.__qualname__}" if wrong else None

    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Lay all elements in a row."""
        ats: list[bytes] = []
        units: list[int] = []
        flags: list[bool] | None = None if batch.flags is None else []
        for index, result in enumerate(results):
            count = len(result)
            at = batch.ats[index]
            place, tail = at[:-TAIL_BYTES], at[-TAIL_BYTES:]
            ats += [b"%b%b%b" % (place, number.to_bytes(4, "big"), tail) for number in range(1, count + 1)]
            if batch.units:
                units += [batch.units[index]] * count
            if flags is not None and batch.flags is not None:
                flags += [batch.flags[index]] * count
        return Batch(ats, units, list(chain.from_iterable(results)), flags)
