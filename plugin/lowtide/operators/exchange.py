"""`key_by`: which hash unit a record belongs to, and the columns it travels in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure
from lowtide.operators.per_record import Stepped
from lowtide.schema import WrongType
from lowtide.steps import KeyBy
from lowtide_snapshots.hashing import hash_units

_GOLDEN = 0x9E3779B97F4A7C15


class ExchangeOperator:
    """Gives every record its hash unit."""

    def __init__(self, step: KeyBy, units: int) -> None:
        self._columns = step.columns
        self._units = units

    def assign(self, batch: Batch) -> Batch:
        """The batch with units; its columns are there already, see `as_columns`."""
        if not self._columns:
            return batch.with_unit(front_units(batch.meta.front, self._units))
        return batch.with_unit(hash_units([batch.column(name) for name in self._columns], self._units))


def front_units(fronts: npt.NDArray[np.int32], units: int) -> npt.NDArray[np.int32]:
    """The hash units of records that are keyed by their front, int32[n].

    Multiples of the golden ratio, modulo 1: any number of neighbouring fronts is spread evenly over the units, and so
    over lanes and workers, where a hash would put two of three into one.
    """
    fraction = (fronts.astype(np.uint64) * np.uint64(_GOLDEN)) >> np.uint64(32)
    return ((fraction * np.uint64(units)) >> np.uint64(32)).astype(np.int32)


def as_columns(batch: Batch, tolerate: bool) -> Stepped:
    """Turn records into columns, where every field is checked against its type; a failure names record and field."""
    try:
        batch.columns()
    except WrongType as error:
        rows = batch.rows()
        if not tolerate:
            return Stepped(batch, [Failure(error.index, rows[error.index], error.what)])
        faults = [(index, batch.schema.fault(row)) for index, row in enumerate(rows)]
        failures = [Failure(index, rows[index], fault.what) for index, fault in faults if fault is not None]
        kept = np.delete(np.arange(len(rows)), [failure.index for failure in failures])
        return Stepped(batch.take(kept), failures)
    return Stepped(batch, [])
