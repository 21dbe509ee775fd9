"""Values that hold other values: lists, dicts and dataclasses, as columns of their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from lowtide.flow.schema.kinds import SCALARS, Kind, Mismatch, encode_strictly, null_mask, refuse_types, with_nulls


class Sequenced(Kind):
    """`list[item]` or `tuple[item, ...]`."""

    def __init__(self, item: Kind, python: Callable[..., Any]) -> None:
        self.item = item
        self.name = f"list[{item.name}]" if python is list else f"tuple[{item.name}, ...]"
        self.arrow = pa.list_(pa.field("item", item.arrow))
        self.python: Any = python

    def encode(self, values: list[Any]) -> pa.Array:
        """Encode all items of all lists as one column."""
        refuse_types(values, self.python, self.name)
        items = list(chain.from_iterable(filter(None, values)))
        offsets, mask = _offsets(values)
        return pa.ListArray.from_arrays(offsets, encode_strictly(self.item, items, "[]"), type=self.arrow, mask=mask)

    def decode(self, column: pa.Array) -> list[Any]:
        """Decode all items at once and cut them."""
        items, offsets = self.item.decode(column.values), column.offsets.to_pylist()
        python = self.python
        cut = [python(items[start:end]) for start, end in pairwise(offsets)]
        return with_nulls(cut, column)

    def holds(self, column: pa.Array) -> bool:
        """All items as well."""
        return column.null_count == 0 and self.item.holds(column.flatten())


class Mapping(Kind):
    """`dict[str, value]`; keeps the order of its keys."""

    def __init__(self, value: Kind) -> None:
        self.value = value
        self.name = f"dict[str, {value.name}]"
        self.arrow = pa.map_(pa.string(), pa.field("value", value.arrow))

    def encode(self, values: list[Any]) -> pa.Array:
        """Encode all keys of all dicts as one column, and all values as another."""
        refuse_types(values, dict, self.name)
        present = list(filter(None, values))
        keys = list(chain.from_iterable(present))
        items = list(chain.from_iterable(value.values() for value in present))
        offsets, mask = _offsets(values)
        columns = (encode_strictly(SCALARS[str], keys, "{}"), encode_strictly(self.value, items, "{}"))
        return pa.MapArray.from_arrays(offsets, *columns, type=self.arrow, mask=mask)

    def decode(self, column: pa.Array) -> list[Any]:
        """Decode all keys and all values at once and pair them."""
        keys, items = SCALARS[str].decode(column.keys), self.value.decode(column.items)
        offsets = column.offsets.to_pylist()
        spans = pairwise(offsets)
        cut = [dict(zip(keys[start:end], items[start:end], strict=True)) for start, end in spans]
        return with_nulls(cut, column)

    def holds(self, column: pa.Array) -> bool:
        """All values as well."""
        return column.null_count == 0 and self.value.holds(column.items)


class Struct(Kind):
    """A dataclass: `fields` are its names and kinds in the order of its constructor."""

    def __init__(self, record: type, fields: Sequence[tuple[str, Kind]], keywords: bool) -> None:
        self.record: Callable[..., Any] = record
        self.fields = tuple(fields)
        self.name = record.__name__
        self.arrow_fields = [pa.field(name, kind.arrow) for name, kind in fields]
        self.arrow = pa.struct(self.arrow_fields)
        self._keywords = keywords

    def columns(self, rows: Sequence[Any]) -> list[pa.Array]:
        """Take records apart; none of them is None. Raises Mismatch."""
        if type(None) in set(map(type, rows)):
            raise Mismatch("", None, self.name)
        refuse_types(rows, self.record, self.name)
        return [encode_strictly(kind, list(map(attrgetter(name), rows)), f".{name}") for name, kind in self.fields]

    def rows(self, columns: Sequence[pa.Array]) -> list[Any]:
        """Put records together."""
        values = [kind.decode(column) for (_, kind), column in zip(self.fields, columns, strict=True)]
        if not self._keywords:
            return list(map(self.record, *values))
        names = [name for name, _ in self.fields]
        return [self.record(**dict(zip(names, row, strict=True))) for row in zip(*values, strict=True)]

    def encode(self, values: list[Any]) -> pa.Array:
        """Take the records apart; a None becomes null, with fields that are never read."""
        if type(None) not in set(map(type, values)):
            return pa.StructArray.from_arrays(self.columns(values), fields=self.arrow_fields)
        nulls = np.array([value is None for value in values])
        taken = pa.array(np.cumsum(~nulls) - 1, mask=nulls)
        columns = [column.take(taken) for column in self.columns([value for value in values if value is not None])]
        return pa.StructArray.from_arrays(columns, fields=self.arrow_fields, mask=pa.array(nulls))

    def decode(self, column: pa.Array) -> list[Any]:
        """Put the records together again."""
        if not column.null_count:
            return self.rows([column.field(index) for index in range(len(self.fields))])
        valid = np.flatnonzero(~null_mask(column))
        present = column.take(pa.array(valid))
        rows: list[Any] = [None] * len(column)
        decoded = self.rows([present.field(index) for index in range(len(self.fields))])
        for index, row in zip(valid.tolist(), decoded, strict=True):
            rows[index] = row
        return rows

    def holds(self, column: pa.Array) -> bool:
        """All fields as well."""
        columns = (column.field(index) for index in range(len(self.fields)))
        return column.null_count == 0 and all(
            kind.holds(part) for (_, kind), part in zip(self.fields, columns, strict=True)
        )


def _offsets(values: list[Any]) -> tuple[pa.Array, pa.Array | None]:
    lengths = np.array([0 if value is None else len(value) for value in values], np.int32)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = pa.array([value is None for value in values]) if type(None) in set(map(type, values)) else None
    return pa.array(offsets), mask
