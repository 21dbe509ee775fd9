"""`map_batches`: Arrow record batches in, Arrow record batches out."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from lowtide.core.operators.faults.failure import Failure, raised
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.plain.per_record import said_type
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.schema import Schema, schema_of
from lowtide.flow.steps.steps import MapBatches


class MapBatchesNode(Node):
    """Hands the data columns to the function; records stay in their places, row by row.

    What raises here always stops the job, dead letters or not: which records share a batch depends on timing, so a
    function that fails with some records is likely to be wrong about the others too. Still only a record that fails
    alone is to blame: one that a tombstone takes back stops nothing.
    """

    sound = True

    def __init__(self, vertex: Vertex[MapBatches]) -> None:
        super().__init__(vertex)
        self._function = vertex.step.function
        self._takes = schema_of(vertex.takes)
        self._schema = schema_of(vertex.gives)

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Call the function with all records."""
        rows, failures = self.apply(batch.rows)
        if failures:
            batch = self.bury(batch, failures, feed)
        if rows:
            self.pass_on(batch.with_rows(rows), feed)

    def apply(self, rows: list[Any]) -> tuple[list[Any], list[Failure]]:
        """Call the function with records; if that fails, with every record alone."""
        made, failure = self._call(rows, 0)
        if failure is None:
            return made, []
        if len(rows) == 1:
            return [], [failure]
        alone = [self._call([row], index) for index, row in enumerate(rows)]
        failures = [failed for _, failed in alone if failed is not None]
        if not failures or len(failures) == len(rows):
            # It fails with any of them, or only with all together since it looks at neighbours: all are to blame.
            return [], [replace(failure, index=index) for index in range(len(rows))]
        return list(chain.from_iterable(made for made, _ in alone)), failures

    def _call(self, rows: list[Any], index: int) -> tuple[list[Any], Failure | None]:
        data = pa.RecordBatch.from_arrays(self._takes.columns(rows), schema=self._takes.arrow)
        try:
            result = self._function(data)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            return [], raised(index, _Rows(len(rows)), error)
        fault = _fault(result, self._schema, len(rows))
        if fault is not None:
            return [], Failure(index, _Rows(len(rows)), fault)
        try:
            return self._schema.rows(result.columns), None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's __post_init__ raises
            return [], raised(index, _Rows(len(rows)), error)


class _Rows:
    """Stands for a whole batch in a message."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __repr__(self) -> str:
        return "a batch of one" if self._count == 1 else f"the first of a batch of {self._count}"


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
