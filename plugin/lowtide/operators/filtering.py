"""`filter`: the records for which a function says True."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.per_record import PerRecord, said_type
from lowtide.steps import Function


class FilterOperator(PerRecord):
    """Keeps records with their meta."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def holds(self, results: list[Any]) -> bool:
        """Whether all results are bool."""
        return set(map(type, results)) <= {bool}

    def fault(self, result: Any) -> str | None:
        """What is wrong with one result."""
        return None if type(result) is bool else f"returned {said_type(result)}, expected bool"

    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Take the records with True."""
        flags = np.fromiter(results, np.bool_, len(results))
        return batch if flags.all() else batch.take(np.flatnonzero(flags))
