"""`map_batches`: Arrow record batches in, Arrow record batches out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure, raised
from lowtide.operators.per_record import Operator, Stepped, said_type
from lowtide.schema import Schema, schema_of
from lowtide.steps import Function


class MapBatchesOperator(Operator):
    """Hands the data columns to the function; meta stays, row by row.

    What raises here always stops the job, dead letters or not: no single record is to blame, and which records share
    a batch depends on timing.
    """

    def __init__(self, function: Function, gives: type) -> None:
        self._function = function
        self._schema = schema_of(gives)

    def apply(self, batch: Batch, tolerate: bool) -> Stepped:
        """Call the function with the batch."""
        data = pa.RecordBatch.from_arrays(batch.columns(), schema=batch.schema.arrow)
        try:
            result = self._function(data)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            return Stepped(batch, [raised(0, _Rows(len(batch)), error)])
        fault = _fault(result, self._schema, len(batch))
        if fault is not None:
            return Stepped(batch, [Failure(0, _Rows(len(batch)), fault)])
        return Stepped(Batch(self._schema, batch.meta, columns=result.columns), [])


class _Rows:
    """Stands for a whole batch in a message."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __repr__(self) -> str:
        return f"the first of a batch of {self._count}"


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
