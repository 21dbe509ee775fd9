"""`flat_map`: any number of records for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.per_record import PerRecord, said_type
from lowtide.schema import schema_of
from lowtide.steps import Function


class FlatMapOperator(PerRecord):
    """Replaces every record by the elements of the function's result, numbered from 1 in their child paths (R4)."""

    def __init__(self, function: Function, gives: type) -> None:
        self._schema = schema_of(gives)
        self._gives = gives
        self.function = function

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
        counts = np.fromiter(map(len, results), np.int64, len(results))
        origins = np.repeat(np.arange(len(results)), counts)
        ordinals = np.arange(1, len(origins) + 1) - (np.cumsum(counts) - counts)[origins]
        meta = batch.meta.take(origins).with_child(ordinals.astype(np.uint32))
        return Batch(self._schema, meta, rows=list(chain.from_iterable(results)))
