"""Exchanges: which hash units a record goes to, what that adds to its meta, and the columns it travels in."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure
from lowtide.operators.order import step_id
from lowtide.operators.per_record import Stepped
from lowtide.schema import WrongType
from lowtide.steps import Broadcast, KeyBy, Relay
from lowtide_snapshots.hashing import hash_units

_GOLDEN = 0x9E3779B97F4A7C15


class ExchangeOperator:
    """Gives every record its hash unit, and folds the exchange's id for that unit into its trace (R4).

    The unit is that of the key columns (`key_by`); the one the record has, before the first exchange its front's
    (`Relay`); or every unit, for one copy each (`Broadcast`).

    Args:
        job: The flow's name.
        name: The exchange's name.
        step: What it does.
        units: Number of hash units.
    """

    def __init__(self, job: str, name: str, step: KeyBy | Relay | Broadcast, units: int) -> None:
        self._step = step
        self._units = units
        self._ids = _ids(job, name, units)

    def assign(self, batch: Batch) -> Batch:
        """The batch with units; its columns are there already, see `as_columns`. O(n), of a broadcast O(n units)."""
        if isinstance(self._step, Broadcast):
            batch = self._copies(batch)
        else:
            batch = batch.with_meta(batch.meta.with_unit(self._unit(batch)))
        units = batch.meta.unit
        assert units is not None
        return batch.with_meta(batch.meta.with_trace(self._ids[units]))

    def _unit(self, batch: Batch) -> npt.NDArray[np.int32]:
        if isinstance(self._step, KeyBy) and self._step.columns:
            return hash_units([batch.column(name) for name in self._step.columns], self._units)
        if batch.meta.unit is not None:
            return batch.meta.unit
        return front_units(batch.meta.front, self._units)

    def _copies(self, batch: Batch) -> Batch:
        """One copy for every hash unit, numbered in the child path."""
        n = len(batch)
        copies = batch.take(np.repeat(np.arange(n), self._units))
        units = np.tile(np.arange(self._units, dtype=np.int32), n)
        return copies.with_meta(copies.meta.with_unit(units).with_child((units + 1).astype(np.uint32)))


@cache
def _ids(job: str, name: str, units: int) -> npt.NDArray[np.uint64]:
    return np.array([step_id(job, name, 0, unit) for unit in range(units)], np.uint64)


def front_units(fronts: npt.NDArray[np.int32], units: int) -> npt.NDArray[np.int32]:
    """The hash units of records that are keyed by their front, int32[n].

    Multiples of the golden ratio, modulo 1: any number of neighbouring fronts is spread evenly over the units, and so
    over lanes and workers, where a hash would put two of three into one.
    """
    fraction = (fronts.astype(np.uint64) * np.uint64(_GOLDEN)) >> np.uint64(32)
    return ((fraction * np.uint64(units)) >> np.uint64(32)).astype(np.int32)


def as_columns(batch: Batch) -> Stepped:
    """Turn records into columns, where every field is checked against its type; a failure names record and field."""
    schema = batch.schema
    assert schema is not None, "windows are neither exchanged nor written"
    try:
        batch.columns()
    except WrongType:
        rows = batch.rows()
        faults = [(index, schema.fault(row)) for index, row in enumerate(rows)]
        failures = [Failure(index, rows[index], fault.what) for index, fault in faults if fault is not None]
        kept = np.delete(np.arange(len(rows)), [failure.index for failure in failures])
        return Stepped(batch.take(kept), failures)
    return Stepped(batch, [])
