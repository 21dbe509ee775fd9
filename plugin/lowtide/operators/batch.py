"""A batch of records of one vertex, as Python objects or as Arrow columns, whichever the next step asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowtide.operators.meta import Meta
from lowtide.schema import Schema

META_FIELDS = (
    pa.field("_front", pa.int32(), nullable=False),
    pa.field("_sequence", pa.int64(), nullable=False),
    pa.field("_timestamp", pa.int64(), nullable=False),
    pa.field("_unit", pa.int32(), nullable=False),
)
"""The columns that stand behind the data in an exchange."""


class Batch:
    """n records and their meta; at least one of rows and columns is there, the other is made once on request.

    Attributes:
        schema: What the records are.
        meta: Where they come from; of the same length.
    """

    __slots__ = ("_columns", "_rows", "meta", "schema")

    def __init__(
        self,
        schema: Schema,
        meta: Meta,
        *,
        rows: list[Any] | None = None,
        columns: list[pa.Array] | None = None,
    ) -> None:
        assert rows is not None or columns is not None, "a batch has rows or columns"
        assert rows is None or len(rows) == len(meta), "one meta per record"
        self.schema = schema
        self.meta = meta
        self._rows = rows
        self._columns = columns

    @classmethod
    def from_arrow(cls, schema: Schema, table: pa.RecordBatch) -> Batch:
        """Take over the columns that `to_arrow` gave; copies nothing.

        Raises:
            ValueError: the columns are not those of the schema.
        """
        expected = exchange_schema(schema)
        if table.schema is not expected and not table.schema.equals(expected):
            raise ValueError(f"a batch of {schema.name} has the columns\n{expected}\nfound\n{table.schema}")
        columns = table.columns
        width = len(columns) - len(META_FIELDS)
        meta = Meta(*(column.to_numpy() for column in columns[width:]))
        return cls(schema, meta, columns=columns[:width])

    def to_arrow(self) -> pa.RecordBatch:
        """The data columns, then `_front`, `_sequence`, `_timestamp` and `_unit`; after an exchange's `with_unit` only.

        Raises:
            WrongType: see `columns`.
        """
        assert self.meta.unit is not None, "only keyed records are exchanged"
        meta = self.meta
        columns = [*self.columns(), *map(pa.array, (meta.front, meta.sequence, meta.timestamp, meta.unit))]
        return pa.RecordBatch.from_arrays(columns, schema=exchange_schema(self.schema))

    def rows(self) -> list[Any]:
        """The records as objects of the dataclass; not to be changed."""
        if self._rows is None:
            assert self._columns is not None
            self._rows = self.schema.rows(self._columns)
        return self._rows

    def columns(self) -> list[pa.Array]:
        """The records as one Arrow array per field.

        Raises:
            WrongType: a record's field holds what its type does not allow.
        """
        if self._columns is None:
            assert self._rows is not None
            self._columns = self.schema.columns(self._rows)
        return self._columns

    def column(self, name: str) -> pa.Array:
        """One field of all records."""
        return self.columns()[self.schema.arrow.get_field_index(name)]

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        """The records at these indices with their meta; copies columns, shares objects."""
        meta = self.meta.take(indices)
        rows = None if self._rows is None else _pick(self._rows, indices)
        columns = None
        if self._columns is not None:
            chosen = pa.array(indices)
            columns = [column.take(chosen) for column in self._columns]
        return Batch(self.schema, meta, rows=rows, columns=columns)

    def with_unit(self, unit: npt.NDArray[np.int32]) -> Batch:
        """The same records with these hash units."""
        return Batch(self.schema, self.meta.with_unit(unit), rows=self._rows, columns=self._columns)

    def split(self, target_of_unit: npt.NDArray[np.int32]) -> Iterator[tuple[int, Batch]]:
        """Part the records by `target_of_unit[unit]`, each part in order; targets ascend; O(n log n) in numpy."""
        assert self.meta.unit is not None, "only keyed records have targets"
        targets = target_of_unit[self.meta.unit]
        if len(targets) == 0:
            return
        if (targets == targets[0]).all():
            yield int(targets[0]), self
            return
        order = np.argsort(targets, kind="stable")
        sorted_targets = targets[order]
        starts = np.flatnonzero(np.diff(sorted_targets, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            yield int(sorted_targets[start]), self.take(order[start:end])

    def __len__(self) -> int:
        return len(self.meta)


@cache
def exchange_schema(schema: Schema) -> pa.Schema:
    """The columns of a batch in an exchange: the record's, then the meta's."""
    return pa.schema([*schema.arrow, *META_FIELDS])


def _pick(rows: Sequence[Any], indices: npt.NDArray[np.int64]) -> list[Any]:
    return list(map(rows.__getitem__, indices.tolist()))
