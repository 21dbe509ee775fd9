"""`merge`: several streams in one; the port a record came in by goes into its trace (R4)."""

from __future__ import annotations

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.order import step_id


class MergeOperator:
    """Folds the port's id into the trace: by hash unit, before the first exchange by front.

    Args:
        job: The flow's name.
        name: The step's name.
        units: Number of hash units.
    """

    def __init__(self, job: str, name: str, units: int) -> None:
        self._job = job
        self._name = name
        self._units = units
        self._ids: dict[tuple[int, int], np.uint64] = {}

    def take(self, batch: Batch, port: int) -> Batch:
        """The same records with this port in their trace; one hash per distinct hash unit and port, once."""
        meta = batch.meta
        places, inverse = np.unique(meta.front if meta.unit is None else meta.unit, return_inverse=True)
        ids = np.array([self._id(port, place) for place in places.tolist()], np.uint64)
        return batch.with_meta(meta.with_trace(ids[inverse]))

    def _id(self, port: int, place: int) -> np.uint64:
        if (port, place) not in self._ids:
            self._ids[port, place] = step_id(self._job, self._name, port, place)
        return self._ids[port, place]
