"""Sees that a user's function leaves alone what it is given: others will read it after it, here or in another life."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

from lowtide.core.operators.faults.failure import Failure, UserError
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import encode_rows, is_fixed
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.site import Function

WATCHED_BYTES = 1_024
"""So much is looked at for each record, on average: larger values in turn, one of 10 KiB with every tenth record."""

_MAKE_ANEW = "make a new record: dataclasses.replace(record, ...), [*record.items, item]"


class Watch:
    """Compares values before and after a call by their encoded bytes; a microsecond for 50 numbers, twice a call."""

    __slots__ = ("_debt",)

    def __init__(self) -> None:
        self._debt = 0

    def look(self, values: Sequence[Any]) -> bytes | None:
        """Encode the values that a function is about to get; None if it is not their turn."""
        self._debt -= WATCHED_BYTES * len(values)
        if self._debt > 0:
            return None
        looked = _encoded(values)
        self._debt = len(looked)
        return looked

    @staticmethod
    def same(values: Sequence[Any], looked: bytes | None) -> bool:
        """Return whether values are unchanged, also if they were not encoded before."""
        return looked is None or _encoded(values) == looked


class RecordWatch(Watch):
    """The same for the records, or windows of records, that a step's function is given."""

    __slots__ = ("_function", "_vertex")

    def __init__(self, vertex: Vertex, function: Function) -> None:
        super().__init__()
        self._vertex = vertex
        self._function = function

    def check(self, rows: list[Any], looked: bytes | None, ats: Sequence[bytes]) -> None:
        """Raise UserError if a function has changed a record: branches, replays and windows have the same object.

        Args:
            rows: The records.
            looked: How they looked before.
            ats: Their order keys.
        """
        if looked is None or self.same(rows, looked):
            return
        offset, first = len(encode_rows([None] * len(rows))) - len(rows), 0
        for index, row in enumerate(rows):
            alone, first = _encoded([row])[1:], index
            if not looked.startswith(alone, offset):
                break
            offset += len(alone)
        raise self.changed(rows[first], ats[first])

    def changed(self, record: object, at: bytes | Position) -> UserError:
        """The error for a record that the function has changed."""
        text = f"changed its record in place, in {shown_function(self._function)}"
        return UserError(self._vertex, at, Failure(0, record, text, way_out=_MAKE_ANEW))


def record_watch(vertex: Vertex) -> RecordWatch | None:
    """The watch of what a step calls its function with; None where nobody can change a record in place."""
    function = vertex.step.functions.get("function")
    if function is None or not vertex.step.per_record:
        return None
    origin, arguments = get_origin(vertex.takes), get_args(vertex.takes)
    taken = arguments[:1] if origin is tuple else arguments if origin in (Union, UnionType) else (vertex.takes,)
    return watch_of(vertex, function, taken)


def watch_of(vertex: Vertex, function: Function, taken: Sequence[type]) -> RecordWatch | None:
    """The watch of a function that is given records of these types; None where nobody can change any in place."""
    fixed = all(is_fixed(schema_of(each).struct) for each in taken)
    return None if fixed else RecordWatch(vertex, function)


def shown_function(function: Function) -> str:
    """A function's name for a message."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def _encoded(values: Sequence[Any]) -> bytes:
    """Values as bytes; none for what no frame can hold, which is another step's to say."""
    try:
        return encode_rows(list(values))
    except (TypeError, ValueError, OverflowError):
        return b""
