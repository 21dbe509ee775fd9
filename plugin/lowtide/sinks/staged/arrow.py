"""Staged records as Arrow's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lowtide.errors import RecordRefused
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.schema.marks import fields_of
from lowtide.flow.schema.schema import schema_of
from lowtide.sinks.staged.contract import StagedRow

if TYPE_CHECKING:
    from lowtide.flow.formats.reading import Decoded


class ArrowRows:
    """Makes columns of a dataclass's staged records.

    Args:
        record: The dataclass.

    Attributes:
        schema: The columns, under the names that they have in JSON; those that cannot be None are not nullable.
    """

    def __init__(self, record: type) -> None:
        self._record, self._known = record, schema_of(record)
        names = {each.name: each.alias or each.name for each in fields_of(record)}
        nullable = {name: kind.name.endswith("| None") for name, kind in self._known.kinds.items()}
        self.schema = pa.schema(
            [pa.field(names[each.name], each.type, nullable[each.name]) for each in self._known.arrow]
        )

    def batch(self, rows: Sequence[StagedRow]) -> pa.RecordBatch:
        """Return the columns of some records (errors: RecordRefused)."""
        return pa.RecordBatch.from_arrays(self._known.columns(records_of(self._record, rows)), schema=self.schema)


def records_of(record: type, rows: Sequence[StagedRow]) -> list[Any]:
    """Return the records that were staged.

    Raises:
        RecordRefused: a row does not fit the dataclass, which has changed since.
    """
    values: list[bytes | None] = [row.value for row in rows]
    decoded: Decoded[Any] = JsonFormat(record).decode(_Rows([row.key for row in rows], values))
    if decoded.failures:
        index, why = decoded.failures[0]
        raise RecordRefused(
            f"a staged record is not a {record.__qualname__}: {why}",
            where=f"offset {rows[index].offset} of the staged log",
            way_out="give new fields a default, and keep those that there were, until the log is carried to its end",
        )
    return decoded.rows


@dataclass(slots=True)
class _Rows:
    """Staged rows as messages: they have keys and values only."""

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[bytes] | None = None
    timestamps: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    topic: str = ""
    partition: int = 0

    def pick(self, chosen: list[int], /) -> _Rows:
        """Return the messages at these indices."""
        return _Rows([self.keys[index] for index in chosen], [self.values[index] for index in chosen])
