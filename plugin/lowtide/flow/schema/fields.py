"""Checks the fields of records one by one, and encodes records between workers.

Both are made once per dataclass: the check is one generated expression, the codec one call into C per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from functools import cache
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from lowtide.flow.schema.kinds import EARLIEST, LATEST, SCALARS, Choice, Kind, Nullable, Scalar
from lowtide.flow.schema.nested_kinds import Mapping, Sequenced, Struct
from lowtide.flow.schema.plain_kinds import Fixed, Identifier
from lowtide.flow.schema.schema import schema_of

_encoder = msgspec.msgpack.Encoder()
encode_rows: Callable[[list[Any]], bytes] = _encoder.encode
"""Records as one msgpack array, each a map of its fields; 0.3 to 0.5 microseconds for a small one."""

_INT = f"-{1 << 63} <= {{0}} <= {(1 << 63) - 1}"
_EXACT = f"-{1 << 53} <= {{0}} <= {1 << 53}"


@cache
def decoder_of(record: Any) -> Callable[[bytes], list[Any]]:
    """Return the inverse of `encode_rows` for records of one dataclass; it makes them without their `__init__`.

    What comes back is as a column would give it: ints in float fields are floats, times are in UTC.
    """
    decode: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[record]).decode
    return decode


@cache
def key_of(columns: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return the function that gets a record's key: the column's value, or a tuple of several columns' values."""
    return attrgetter(*columns)


@cache
def keeps(record: Any) -> bool:
    """Return whether a record that fits comes out of an exchange the same, so that it need not be copied.

    That holds for frozen dataclasses of immutable fields that no codec changes; all others are copied on the way.
    """
    parameters = record.__dataclass_params__
    if not (parameters.frozen and parameters.init) or hasattr(record, "__post_init__"):
        return False
    return all(map(_keeps, schema_of(record).kinds.values()))


def kept(record: Any, rows: list[Any], payload: bytes) -> list[Any]:
    """Return records as they come out of an exchange, given as they went in and encoded."""
    return rows if keeps(record) else decoder_of(record)(payload)


def is_fixed(kind: Kind) -> bool:
    """Return whether a kind's values are immutable and, apart from text and bytes, of bounded length."""
    if isinstance(kind, Nullable):
        return is_fixed(kind.inner)
    if isinstance(kind, Struct):
        parameters = kind.record.__dataclass_params__  # type: ignore[attr-defined]  # a Struct's is a dataclass
        return parameters.frozen and not _has_own_code(kind) and all(is_fixed(inner) for _, inner in kind.fields)
    return isinstance(kind, Scalar | Choice | Fixed | Identifier)


@cache
def fits_of(record: Any) -> Callable[[Any], bool]:
    """Return a check that all fields of a record are of their kinds: True exactly if `Schema.fault` finds nothing."""
    return _look(schema_of(record).struct, exact=False)


def saves_of(kind: Kind) -> Callable[[Any], bool]:
    """Return a check that a value is of a kind and a column gives back exactly the same: 3.0 as a float, but not 3."""
    names: dict[str, Any] = {}
    saves: Callable[[Any], bool] = eval(f"lambda r: {_expression(kind, 'r', names, exact=True)}", names)  # noqa: S307
    return saves


def _look(struct: Struct, *, exact: bool) -> Callable[[Any], bool]:
    names: dict[str, Any] = {"T": struct.record}
    parts = [_expression(kind, f"r.{name}", names, exact=exact) for name, kind in struct.fields]
    if exact and _has_own_code(struct):
        names["comes_back"] = lambda record: repr(struct.decode(struct.encode([record]))[0]) == repr(record)
        parts.append("comes_back(r)")
    # Made of field names, which are identifiers, and of expressions from this file.
    look: Callable[[Any], bool] = eval(f"lambda r: type(r) is T and {' and '.join(parts)}", names)  # noqa: S307
    return look


def is_made_by_code(kind: Kind) -> bool:
    """Return whether a dataclass in a kind is made by the user's code, which may leave more in it than its fields."""
    if isinstance(kind, Nullable):
        return is_made_by_code(kind.inner)
    if isinstance(kind, Sequenced):
        return is_made_by_code(kind.item)
    if isinstance(kind, Mapping):
        return is_made_by_code(kind.value)
    return isinstance(kind, Struct) and (_has_own_code(kind) or any(is_made_by_code(inner) for _, inner in kind.fields))


def _has_own_code(struct: Struct) -> bool:
    """Return whether a dataclass's constructor is the user's, or calls the user's."""
    parameters = struct.record.__dataclass_params__  # type: ignore[attr-defined]  # a Struct's is a dataclass
    return not parameters.init or hasattr(struct.record, "__post_init__")


def _expression(kind: Kind, value: str, names: dict[str, Any], *, exact: bool) -> str:  # noqa: PLR0911 - one per kind
    """Return an expression that is true if a value is of a kind; put what it refers to into `names`."""
    if isinstance(kind, Nullable):
        return f"({value} is None or {_expression(kind.inner, value, names, exact=exact)})"
    if isinstance(kind, Scalar):
        return _scalar(kind.python, value, names, exact=exact)
    if isinstance(kind, Struct):
        return f"{_name(_look(kind, exact=exact), names)}({value})"
    if isinstance(kind, Fixed):
        return f"{_name(kind.fits, names)}({value})"
    if isinstance(kind, Identifier):
        return f"type({value}) is {_name(UUID, names)}"
    if isinstance(kind, Choice):
        return f"(type({value}) is {_name(kind.member_type, names)} and {value} in {_name(kind.members, names)})"
    if isinstance(kind, Sequenced):
        return f"(type({value}) is {_name(kind.python, names)} and {_each(kind.item, value, names, exact=exact)})"
    assert isinstance(kind, Mapping), f"no check for {kind.name}"
    keys = _each(SCALARS[str], value, names, exact=exact)
    return f"(type({value}) is dict and {keys} and {_each(kind.value, f'{value}.values()', names, exact=exact)})"


def _each(kind: Kind, values: str, names: dict[str, Any], *, exact: bool) -> str:
    """Return an expression that is true if all values are of a kind; in C where possible, ten times as fast."""
    item = f"x{len(names)}"
    names[item] = None
    each = f"all([{_expression(kind, item, names, exact=exact)} for {item} in {values}])"
    if (
        not isinstance(kind, Scalar)
        or kind.python.__name__ in ("datetime", "time")
        or (kind.python is float and not exact)
    ):
        return each
    types = f"set(map(type, {values})) <= {_name({kind.python}, names)}"
    if kind.python is str:
        return f"({types} and (''.join({values}).isascii() or {each}))"
    if kind.python is int:
        return f"({types} and (not {values} or {_INT.format(f'min({values})')} and {_INT.format(f'max({values})')}))"
    return f"({types})"


def _scalar(python: type, value: str, names: dict[str, Any], *, exact: bool) -> str:  # noqa: PLR0911 - one per type
    look = f"type({value}) is {_name(python, names)}"
    if python is str:
        return f"({look} and ({value}.isascii() or {_name(_is_text, names)}({value})))"
    if python is int:
        return f"({look} and {_INT.format(value)})"
    if python is float and not exact:
        return f"({look} or (type({value}) is {_name(int, names)} and {_EXACT.format(value)}))"
    if python.__name__ == "time":
        return f"({look} and {value}.tzinfo is None and not {value}.fold)"
    if python.__name__ != "datetime":
        return look
    utc = f"{value}.tzinfo is {_name(UTC, names)}"
    if exact:
        return f"({look} and {utc})"
    instant = f"{_name(EARLIEST, names)} <= {value} <= {_name(LATEST, names)}"
    return f"({look} and ({utc} or ({value}.tzinfo is not None and {instant})))"


def _name(thing: Any, names: dict[str, Any]) -> str:
    name = f"n{len(names)}"
    names[name] = thing
    return name


def _is_text(value: str) -> bool:
    """Return whether text has a UTF-8 form: a lone surrogate, as from a wrongly decoded file name, has none."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _keeps(kind: Kind) -> bool:
    if isinstance(kind, Nullable):
        return _keeps(kind.inner)
    if isinstance(kind, Struct):
        return keeps(kind.record)
    if isinstance(kind, Sequenced):
        return kind.python is tuple and _keeps(kind.item)
    if isinstance(kind, Scalar):
        return kind.python in (str, bytes, bool, int) or kind.python.__name__ == "date"
    return isinstance(kind, Choice | Fixed)
