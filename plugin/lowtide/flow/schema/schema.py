"""The schemas of records, which are dataclasses: what each field may hold, as Arrow columns and back.

| field type | Arrow | note |
|---|---|---|
| `str`, `bytes`, `bool`, `date` | string, binary, bool, date32 | |
| `int` | int64 | a larger number is refused; a bool is not an int |
| `float` | float64 | an int of up to 53 bits is accepted and becomes a float |
| `datetime` | timestamp[us, UTC] | must have a time zone; comes back as the same instant in UTC |
| `time` | time64[us] | without a time zone |
| `Annotated[Decimal, Precision(18, 2)]` | decimal128(18, 2) | has exactly so many digits after the point |
| `UUID` | string | |
| `Enum`, `Literal` | string or int64 | members all str or all int |
| `T | None` | nullable | the only union |
| `list[T]`, `tuple[T, ...]` | list | |
| `dict[str, T]` | map | order of keys kept |
| another dataclass | struct | not itself, at any depth |

Sets are refused since their order is not repeatable; so are `Any`, a Decimal without its precision, fields that are
not arguments of the constructor, and names that start with an underscore.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from decimal import Decimal
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Optional, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

import pyarrow as pa

from lowtide.errors import FlowError, UserCodeFailed
from lowtide.flow.schema.kinds import SCALARS, Choice, Kind, Mismatch, Nullable, encode_strictly, enum_choice
from lowtide.flow.schema.markers import Precision
from lowtide.flow.schema.nested_kinds import Mapping, Sequenced, Struct
from lowtide.flow.schema.plain_kinds import DIGITS_LIMIT, Fixed, Identifier


class SchemaRefused(FlowError):
    """Change the dataclass: one of its fields has a type that no column can hold."""


class WrongType(UserCodeFailed):
    """A record's field holds what its type does not allow.

    Attributes:
        index: The record's index in the batch.
    """

    def __init__(self, index: int, path: str, value: object, expected: str) -> None:
        found = "None" if value is None else f"{type(value).__qualname__} {_shortened(value)}"
        super().__init__(f"{path}: expected {expected}, found {found}")
        self.index = index


class Schema:
    """The columns of a dataclass.

    Attributes:
        record: The dataclass.
        arrow: Its columns in the order of its fields.
        kinds: The kind of each column, by name.
        struct: The kind of a whole record.
    """

    def __init__(self, record: type, struct: Struct) -> None:
        self.struct = struct
        self.record = record
        self.kinds: dict[str, Kind] = dict(struct.fields)
        self.arrow: pa.Schema = pa.schema(struct.arrow_fields)

    def columns(self, rows: Sequence[Any]) -> list[pa.Array]:
        """Turn n records into one column per field of n values; copies, O(n) per field without Python code per record.

        Raises:
            WrongType: names the first record that does not fit, the field, the value and what was expected.
        """
        try:
            return self.struct.columns(rows)
        except Mismatch:
            raise self._first_fault(rows) from None

    def rows(self, columns: Sequence[pa.Array]) -> list[Any]:
        """Turn columns of n values each into records equal to those they were made of."""
        return self.struct.rows(columns)

    def fault(self, row: object) -> WrongType | None:
        """Return the fault of one record, None if it has none; slow, for use once something went wrong."""
        try:
            self.struct.columns([row])
        except Mismatch as mismatch:
            return WrongType(0, self.name + mismatch.path, mismatch.value, mismatch.expected)
        return None

    @property
    def name(self) -> str:
        """The dataclass's name."""
        return self.struct.name

    def _first_fault(self, rows: Sequence[Any]) -> WrongType:
        for index, row in enumerate(rows):
            fault = self.fault(row)
            if fault is not None:
                fault.index = index
                return fault
        raise AssertionError("a batch does not fit its schema, but each of its records does")


def schema_of(record: type) -> Schema:
    """Return the schema of a dataclass, the same object each time; raises SchemaRefused with class and field."""
    return _schema_of(record)


def hints_of(record: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields, by name; raises SchemaRefused if they cannot be read."""
    try:
        return get_type_hints(record, include_extras=True)
    except (NameError, TypeError) as error:
        raise SchemaRefused(f"the field types of {record.__qualname__} cannot be read: {error}") from None


def kind_of(hint: Any, qualname: str) -> Kind:
    """Return the kind of a type's values, as a field or as a state; raises SchemaRefused with the place."""
    return _kind(hint, qualname, ())


@cache
def _schema_of(record: Hashable) -> Schema:
    known = cast(type, record)  # _struct refuses all else
    return Schema(known, _struct(known, ()))


def _struct(record: type, inside: tuple[type, ...]) -> Struct:
    if not isinstance(record, type) or not dataclasses.is_dataclass(record):
        raise SchemaRefused(f"a record must be a dataclass, found {said(record)}")
    if record in inside:
        raise SchemaRefused(f"{record.__qualname__} contains itself, which no column can hold")
    hints = hints_of(record)
    declared = dataclasses.fields(record)
    if not declared:
        raise SchemaRefused(f"{record.__qualname__} has no fields")
    fields = []
    for field in declared:
        qualname = f"{record.__qualname__}.{field.name}"
        if field.name.startswith("_"):
            raise SchemaRefused(f"{qualname}: names that start with an underscore are reserved; rename it")
        if not field.init:
            raise SchemaRefused(f"{qualname}: not an argument of the constructor, so records could not be rebuilt")
        kind = _kind(hints[field.name], qualname, (*inside, record))
        if field.default is not dataclasses.MISSING:
            _check_default(kind, field.default, qualname)
        fields.append((field.name, kind))
    return Struct(record, fields, keywords=any(field.kw_only for field in declared))


def _check_default(kind: Kind, default: object, qualname: str) -> None:
    """Refuse a Decimal of other digits: type checkers miss it, and only records without the field would show it."""
    try:
        encode_strictly(kind, [default], "")
    except Mismatch as mismatch:
        if type(mismatch.value) is Decimal:
            raise SchemaRefused(
                f"{qualname}: its default{mismatch.path} is {mismatch.value!r}, expected {mismatch.expected}"
            ) from None


def _kind(hint: Any, qualname: str, inside: tuple[type, ...]) -> Kind:  # noqa: C901, PLR0911 - one line per kind
    if hasattr(hint, "__metadata__"):
        return _annotated(hint, qualname, inside)
    if hint in SCALARS or hint is UUID:
        return Identifier() if hint is UUID else SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        others = [argument for argument in arguments if argument is not NoneType]
        if len(others) == 1 and len(arguments) == 2:
            return Nullable(_kind(others[0], qualname, inside))
    elif origin is Literal and len(set(map(type, arguments))) == 1 and type(arguments[0]) in (str, int):
        return Choice(said(hint), arguments, arguments)
    elif origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
        return Sequenced(_kind(arguments[0], qualname, inside), origin)
    elif origin is dict and arguments[0] is str:
        return Mapping(_kind(arguments[1], qualname, inside))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        if {type(member.value) for member in hint} in ({str}, {int}):
            return enum_choice(hint)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _struct(hint, inside)
    raise SchemaRefused(
        f"{qualname}: no column can hold {said(hint)}",
        way_out="use str, int, float, bool, bytes, date, datetime, time, UUID, Enum, Literal, a dataclass, "
        "Annotated[Decimal, lt.Precision(18, 2)], T | None, list[T], tuple[T, ...] or dict[str, T] of them",
    )


def _annotated(hint: Any, qualname: str, inside: tuple[type, ...]) -> Kind:
    """Return the kind of a marked type: `Precision` says what a value is, other markers only its place."""
    inner = get_args(hint)[0]
    precision = next((mark for mark in hint.__metadata__ if isinstance(mark, Precision)), None)
    if precision is None:
        return _kind(inner, qualname, inside)
    if inner not in (Decimal, Decimal | None, Optional[Decimal]):  # noqa: UP045 - as a user may write it
        raise SchemaRefused(f"{qualname}: Precision marks Decimal, or that | None, found {said(inner)}")
    digits, scale = precision.digits, precision.scale
    if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits or not 1 <= digits <= DIGITS_LIMIT:
        raise SchemaRefused(f"{qualname}: {precision} is not possible: use 0 <= scale <= digits <= {DIGITS_LIMIT}")
    kind = Fixed(digits, scale)
    return kind if inner is Decimal else Nullable(kind)


def said(hint: object) -> str:
    """Write a type as the user wrote it, or nearly so."""
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
