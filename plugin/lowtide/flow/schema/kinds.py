"""The kinds of values a record's field may have, each with its conversion to Arrow and back.

Strict: a value has exactly the Python type its field declares, with the one exception of Python's own typing: an int
is accepted as a float if no digit is lost. All work is done a column at a time; O(n) per nesting level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

_NULL = type(None)
_FLOAT_EXACT = 2**53


class Mismatch(Exception):
    """A value is not of its field's kind.

    Attributes:
        path: The field, e.g. `.lines[].price`.
        value: The value found.
        expected: The type that the field declares.
    """

    def __init__(self, path: str, value: object, expected: str) -> None:
        super().__init__(path, value, expected)
        self.path = path
        self.value = value
        self.expected = expected


class Kind(ABC):
    """One kind of value. `name` is its type in Python, `arrow` in Arrow."""

    name: str
    arrow: pa.DataType

    @property
    def can_be_key(self) -> bool:
        """True if equal values have equal bytes, so that records can be keyed by them."""
        return False

    @abstractmethod
    def encode(self, values: list[Any]) -> pa.Array:
        """Make a column; None becomes null. Raises Mismatch."""

    @abstractmethod
    def decode(self, column: pa.Array) -> list[Any]:
        """Return the values that `encode` was given."""

    def holds(self, column: pa.Array) -> bool:
        """Return whether a column of the right Arrow type, not made by `encode`, has values of this kind only."""
        return not column.null_count


class Nullable(Kind):
    """A value or None."""

    def __init__(self, inner: Kind) -> None:
        self.inner = inner
        self.name = f"{inner.name} | None"
        self.arrow = inner.arrow

    @property
    def can_be_key(self) -> bool:
        """As without None."""
        return self.inner.can_be_key

    def encode(self, values: list[Any]) -> pa.Array:
        """Encode, nulls included."""
        return self.inner.encode(values)

    def decode(self, column: pa.Array) -> list[Any]:
        """Decode, nulls included."""
        return self.inner.decode(column)

    def holds(self, column: pa.Array) -> bool:
        """Nulls are fine."""
        return self.inner.holds(column.drop_null())


def encode_strictly(kind: Kind, values: list[Any], path: str) -> pa.Array:
    """Encode a part of a larger value, whose `path` a Mismatch names; None needs a Nullable."""
    try:
        if not isinstance(kind, Nullable) and _NULL in set(map(type, values)):
            raise Mismatch("", None, kind.name)
        return kind.encode(values)
    except Mismatch as mismatch:
        raise Mismatch(path + mismatch.path, mismatch.value, mismatch.expected) from None


def refuse_types(values: Sequence[Any], wanted: object, expected: str) -> None:
    """Raise Mismatch if a value is neither None nor of exactly this type; O(n) in C."""
    if set(map(type, values)) - {wanted, _NULL}:
        value = next(value for value in values if type(value) is not wanted and value is not None)
        raise Mismatch("", value, expected)


@dataclass(frozen=True)
class Scalar(Kind):
    """A plain value: `python` is its exact type."""

    name: str
    arrow: pa.DataType
    python: type

    @property
    def can_be_key(self) -> bool:
        """True for all but time, and float, as nearly equal floats would be different keys."""
        return self.python not in (float, time)

    def encode(self, values: list[Any]) -> pa.Array:
        """Check the types of all values at once, then let Arrow copy them."""
        if self.python is float:
            values = _floats(values)
        refuse_types(values, self.python, self.name)
        if self.python is datetime:
            _refuse_no_instants(values)
        if self.python is time:
            _refuse_zones(values)
        try:
            return pa.array(values, self.arrow)
        except (pa.ArrowException, OverflowError, ValueError):
            raise Mismatch("", self._culprit(values), f"{self.name} that {self.arrow} can hold") from None

    def decode(self, column: pa.Array) -> list[Any]:
        """Let numpy make the values of those types that it makes fastest."""
        if self.python in (str, bytes):
            values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
            return values
        if self.python is time:
            return list(column.to_pylist())
        filled = column.fill_null(_ZERO[self.python]) if column.null_count else column
        values = filled.to_numpy(zero_copy_only=False).tolist()
        if self.python is datetime:
            values = [value.replace(tzinfo=UTC) for value in values]
        return with_nulls(values, column)

    def _culprit(self, values: list[Any]) -> object:
        for value in values:
            try:
                pa.array([value], self.arrow)
            except (pa.ArrowException, OverflowError, ValueError):
                return value
        raise AssertionError("a column cannot be encoded, but each of its values can")


_ZERO: dict[type, Any] = {
    int: 0,
    float: 0.0,
    bool: False,
    date: date(1970, 1, 1),
    datetime: datetime(1970, 1, 1, tzinfo=UTC),
}

SCALARS: dict[type, Scalar] = {
    str: Scalar("str", pa.string(), str),
    bytes: Scalar("bytes", pa.binary(), bytes),
    int: Scalar("int", pa.int64(), int),
    float: Scalar("float", pa.float64(), float),
    bool: Scalar("bool", pa.bool_(), bool),
    date: Scalar("date", pa.date32(), date),
    datetime: Scalar("datetime with a time zone", pa.timestamp("us", tz="UTC"), datetime),
    time: Scalar("time without a time zone", pa.time64("us"), time),
}


def _floats(values: list[Any]) -> list[Any]:
    if int not in set(map(type, values)):
        return values
    return [float(value) if type(value) is int and abs(value) <= _FLOAT_EXACT else value for value in values]


EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""Columns give back UTC: the last hours of the last day, west of Greenwich, have no such datetime."""


def _refuse_no_instants(values: list[Any]) -> None:
    if set(map(attrgetter("tzinfo"), filter(None, values))) <= {UTC}:
        return
    for value in values:
        if value is not None and value.tzinfo is None:
            raise Mismatch("", value, "datetime with a time zone")
        if value is not None and not EARLIEST <= value <= LATEST:
            raise Mismatch("", value, "datetime with a time zone, in UTC of the years 1 to 9999")


def _refuse_zones(values: list[Any]) -> None:
    for value in values:
        if value is not None and (value.tzinfo is not None or value.fold):
            raise Mismatch("", value, "time without a time zone")


def with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    """Put None where the column is null; changes `values`."""
    if column.null_count:
        for index in np.flatnonzero(null_mask(column)).tolist():
            values[index] = None
    return values


def null_mask(column: pa.Array) -> Any:
    """Return a mask of a column's nulls, bool[n]."""
    return column.is_null().to_numpy(zero_copy_only=False)


class Choice(Kind):
    """One of a few values, all str or all int: an Enum or a Literal; stored as the str or int."""

    def __init__(self, name: str, members: Sequence[Any], stored: Sequence[Any]) -> None:
        self.name = name
        self._inner = SCALARS[type(stored[0])]
        self.arrow = self._inner.arrow
        self.member_type = type(members[0])
        self.members = frozenset(members)
        self._store: dict[Any, Any] = {**dict(zip(members, stored, strict=True)), None: None}
        self._load: dict[Any, Any] = {**dict(zip(stored, members, strict=True)), None: None}

    @property
    def can_be_key(self) -> bool:
        """As for the stored values."""
        return True

    def encode(self, values: list[Any]) -> pa.Array:
        """Look every value up."""
        refuse_types(values, self.member_type, self.name)
        try:
            return self._inner.encode([self._store[value] for value in values])
        except KeyError as error:
            raise Mismatch("", error.args[0], self.name) from None

    def decode(self, column: pa.Array) -> list[Any]:
        """Look every value up; a stored value that is no longer a member is a Mismatch."""
        try:
            return [self._load[value] for value in self._inner.decode(column)]
        except KeyError as error:
            raise Mismatch("", error.args[0], self.name) from None

    def holds(self, column: pa.Array) -> bool:
        """Only members."""
        return column.null_count == 0 and set(column.unique().to_pylist()) <= set(self._load)


def enum_choice(record: type[Enum]) -> Choice:
    """Return the kind of an Enum whose values are all str or all int."""
    members = list(record)
    return Choice(record.__name__, members, [member.value for member in members])
