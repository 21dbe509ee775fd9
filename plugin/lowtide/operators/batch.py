"""A batch of records of one vertex, as Python objects or as Arrow columns, whichever the next step asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowtide.operators.meta import Child, Indices, Meta
from lowtide.schema import Schema

META_FIELDS = (
    pa.field("_tick", pa.int64(), nullable=False),
    pa.field("_front", pa.int32(), nullable=False),
    pa.field("_sequence", pa.int64(), nullable=False),
    pa.field("_child", pa.binary(), nullable=False),
    pa.field("_trace", pa.uint64(), nullable=False),
    pa.field("_tombstone", pa.uint8(), nullable=False),
    pa.field("_unit", pa.int32(), nullable=False),
)
"""The columns that stand behind the data in an exchange; `_child` has one width in one batch, padded with zeros."""


class Batch:
    """n records and their meta; at least one of rows and columns is there, the other is made once on request.

    Attributes:
        schema: What the records are; None where they never become columns, as windows and faults.
        meta: Where they come from; of the same length.
    """

    __slots__ = ("_columns", "_rows", "meta", "schema")

    def __init__(
        self,
        schema: Schema | None,
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
        tick, front, sequence, child, trace, tombstone, unit = columns[width:]
        meta = Meta(
            tick.to_numpy(),
            front.to_numpy(),
            sequence.to_numpy(),
            child_of(child),
            trace.to_numpy(),
            tombstone.to_numpy().view(np.bool_),
            unit.to_numpy(),
        )
        return cls(schema, meta, columns=columns[:width])

    @classmethod
    def concat(cls, batches: Sequence[Batch]) -> Batch:
        """Batches of one schema, one after the other; as rows if one of them has rows, as columns if all have columns.

        Rows are never dropped for columns: a sink would write 1.0 where a function gave 1, if it happened to come
        together with records that had been columns.
        """
        if len(batches) == 1:
            return batches[0]
        meta = Meta.concat([batch.meta for batch in batches])
        schema = batches[0].schema
        rows = columns = None
        if all(batch._columns is not None for batch in batches):
            columns = [pa.concat_arrays(parts) for parts in zip(*(batch.columns() for batch in batches), strict=True)]
        if columns is None or any(batch._rows is not None for batch in batches):
            rows = list(chain.from_iterable(batch.rows() for batch in batches))
        return cls(schema, meta, rows=rows, columns=columns)

    def to_arrow(self) -> pa.RecordBatch:
        """The data columns, then `META_FIELDS`; after an exchange's `with_unit` only.

        Raises:
            WrongType: see `columns`.
        """
        assert self.meta.unit is not None, "only keyed records are exchanged"
        assert self.schema is not None, "only records with columns are exchanged"
        meta = self.meta
        columns = [
            *self.columns(),
            pa.array(meta.tick),
            pa.array(meta.front),
            pa.array(meta.sequence),
            child_column(meta.child),
            pa.array(meta.trace),
            pa.array(meta.tombstone.view(np.uint8)),
            pa.array(meta.unit),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=exchange_schema(self.schema))

    def rows(self) -> list[Any]:
        """The records as objects of the dataclass; not to be changed."""
        if self._rows is None:
            assert self._columns is not None
            assert self.schema is not None
            self._rows = self.schema.rows(self._columns)
        return self._rows

    def columns(self) -> list[pa.Array]:
        """The records as one Arrow array per field.

        Raises:
            WrongType: a record's field holds what its type does not allow.
        """
        if self._columns is None:
            assert self._rows is not None
            assert self.schema is not None, "these records never become columns"
            self._columns = self.schema.columns(self._rows)
        return self._columns

    def column(self, name: str) -> pa.Array:
        """One field of all records."""
        assert self.schema is not None
        return self.columns()[self.schema.arrow.get_field_index(name)]

    def take(self, indices: Indices) -> Batch:
        """The records at these indices with their meta; copies columns, shares objects."""
        meta = self.meta.take(indices)
        rows = None if self._rows is None else _pick(self._rows, indices)
        columns = None
        if self._columns is not None:
            chosen = pa.array(indices)
            columns = [column.take(chosen) for column in self._columns]
        return Batch(self.schema, meta, rows=rows, columns=columns)

    def with_meta(self, meta: Meta) -> Batch:
        """The same records with this meta."""
        return Batch(self.schema, meta, rows=self._rows, columns=self._columns)

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


def _pick(rows: Sequence[Any], indices: Indices) -> list[Any]:
    return list(map(rows.__getitem__, indices.tolist()))


def child_column(child: Child) -> pa.Array:
    """Child paths as byte strings that compare bytewise: big-endian, of one length."""
    n, width = child.shape
    data = child.astype(">u4").tobytes()
    offsets = np.arange(n + 1, dtype=np.int32) * (4 * width)
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def child_of(column: pa.Array) -> Child:
    """The inverse of `child_column`."""
    n = len(column)
    _, offsets, data = column.buffers()
    if n == 0:
        return np.empty((0, 0), np.uint32)
    first, second = np.frombuffer(offsets, np.int32, 2, 4 * column.offset).tolist()
    width = (second - first) // 4
    if width == 0:
        return np.empty((n, 0), np.uint32)
    return np.frombuffer(data, ">u4", n * width, first).reshape(n, width).astype(np.uint32)
