"""`map_batches`: Arrow record batches in, Arrow record batches out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lowtide.kinds import Kind
from lowtide.nested_kinds import Struct
from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure, raised
from lowtide.operators.per_record import Operator, Stepped, said_type
from lowtide.schema import Schema, schema_of
from lowtide.steps import Function


class MapBatchesOperator(Operator):
    """Hands the data columns to the function; meta stays, row by row.

    What raises here always stops the job, dead letters or not: which records share a batch depends on timing, so a
    function that fails with some records is likely to be wrong about the others too. Still only a record that fails
    alone is to blame: one that a tombstone takes back stops nothing.
    """

    def __init__(self, function: Function, gives: type) -> None:
        self._function = function
        self._schema = schema_of(gives)
        self._checks = _checks(gives, self._schema.kinds.values())

    def apply(self, batch: Batch) -> Stepped:
        """Call the function with the batch; if that fails, with every record alone."""
        result, failure = self._call(batch, 0)
        if failure is None:
            return Stepped(Batch(self._schema, batch.meta, columns=result.columns), [])
        if len(batch) == 1:
            return Stepped(batch.take(np.arange(0)), [failure])
        alone = [self._call(batch.take(np.array([index])), index) for index in range(len(batch))]
        failures = [failed for _, failed in alone if failed is not None]
        if not failures or len(failures) == len(batch):
            # It fails with any of them, or only with all together since it looks at neighbours: all are to blame.
            return Stepped(batch.take(np.arange(0)), [replace(failure, index=index) for index in range(len(batch))])
        kept = [index for index, (_, failed) in enumerate(alone) if failed is None]
        columns = [pa.concat_arrays(parts) for parts in zip(*(alone[index][0].columns for index in kept), strict=True)]
        return Stepped(Batch(self._schema, batch.meta.take(np.array(kept)), columns=columns), failures)

    def _call(self, batch: Batch, index: int) -> tuple[Any, Failure | None]:
        assert batch.schema is not None, "windows are not given to map_batches"
        data = pa.RecordBatch.from_arrays(batch.columns(), schema=batch.schema.arrow)
        try:
            result = self._function(data)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            return None, raised(index, _Rows(len(batch)), error)
        fault = _fault(result, self._schema, len(batch))
        if fault is not None:
            return result, Failure(index, _Rows(len(batch)), fault)
        if self._checks:
            try:
                self._schema.rows(result.columns)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's __post_init__ raises
                return None, raised(index, _Rows(len(batch)), error)
        return result, None


class _Rows:
    """Stands for a whole batch in a message."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __repr__(self) -> str:
        return "a batch of one" if self._count == 1 else f"the first of a batch of {self._count}"


def _checks(record: object, kinds: Iterable[Kind]) -> bool:
    """Whether a dataclass, or one inside of it, may refuse values: only then are records made just to see that."""
    return hasattr(record, "__post_init__") or any(map(_kind_checks, kinds))


def _kind_checks(kind: Kind) -> bool:
    if isinstance(kind, Struct):
        return _checks(kind.record, (part for _, part in kind.fields))
    inner = getattr(kind, "inner", None) or getattr(kind, "item", None) or getattr(kind, "value", None)
    return isinstance(inner, Kind) and _kind_checks(inner)


def _fault(result: Any, schema: Schema, count: int) -> str | None:
    if not isinstance(result, pa.RecordBatch):
        return f"returned {said_type(result)}, expected pyarrow.RecordBatch"
    if result.num_rows != count:
        return f"returned {result.num_rows} rows for {count}; row i of the result is made of row i"
    if result.schema.names != schema.arrow.names:
        return f"returned the columns {result.schema.names}, expected {schema.arrow.names}"
    for name, kind in schema.kinds.items():
        column = result.column(name)
        if column.type != kind.arrow:
            return f"returned column {name!r} as {column.type}, expected {kind.arrow}; cast it"
        if not kind.holds(column):
            return f"returned a value in column {name!r} that is not {kind.name}, perhaps a null"
    return None
