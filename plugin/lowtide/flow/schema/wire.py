"""The form of records in a message's value, if it differs from the dataclass: its twin, and the conversions.

A wire is made of a type, not of a codec: JSON, Avro and Protobuf share it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from lowtide.flow.schema.markers import Epoch, Precision
from lowtide.flow.schema.marks import Field, fields_of
from lowtide.flow.schema.plain_kinds import Fixed
from lowtide.flow.schema.schema import SchemaRefused
from lowtide.flow.schema.texts import decimal_of, time_of

Convert = Callable[[Any], Any]

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROSECOND_NS = 1_000
_UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class Misread(Exception):
    """A part of a message is not what its field declares."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wire:
    """The form of a type in a value.

    Attributes:
        hint: The type that codecs read and write.
        read: Makes a value of the type from one of `hint`; None if they are the same.
        write: The other way round.
    """

    hint: Any
    read: Convert | None = None
    write: Convert | None = None


def wire_of(hint: Any, qualname: str = "a field", *, fine: bool = False) -> Wire:  # noqa: PLR0911 - one per type
    """Return the form of any type that a field may have.

    Args:
        hint: The type.
        qualname: The field, for error texts.
        fine: Read times from their text, so that none is rounded (`lowtide.flow.schema.texts`).
    """
    if hasattr(hint, "__metadata__"):
        inner = get_args(hint)[0]
        for mark in hint.__metadata__:
            if isinstance(mark, Epoch):
                return _of_epoch(inner, mark, qualname)
            if isinstance(mark, Precision):
                return _of_decimal(inner, mark, qualname)
        return wire_of(inner, qualname, fine=fine)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _or_none(wire_of(next(each for each in arguments if each is not type(None)), qualname, fine=fine))
    if origin in (list, tuple):
        item = wire_of(arguments[0], qualname, fine=fine)
        whole: Any = list[item.hint] if origin is list else tuple[item.hint, ...]  # type: ignore[name-defined]
        return _each(whole, item, lambda convert: lambda values: origin(map(convert, values)))
    if origin is dict:
        item = wire_of(arguments[1], qualname, fine=fine)
        whole = dict[str, item.hint]  # type: ignore[name-defined]  # a type made of a value
        return _each(whole, item, lambda convert: lambda values: {key: convert(each) for key, each in values.items()})
    if fine and hint in (datetime, time):
        return _read_as(Any, time_of(hint), qualname)
    return _inside(hint, fine=fine) if dataclasses.is_dataclass(hint) else Wire(hint)


def wire_of_field(field: Field, record: type | None = None, *, fine: bool = False) -> Wire:
    """Return the form of a field in the value of a record."""
    qualname = field.name if record is None else f"{record.__qualname__}.{field.name}"
    return (
        wire_of(field.hint, qualname, fine=fine)
        if field.epoch is None
        else _of_epoch(field.hint, field.epoch, qualname)
    )


@cache
def has_times(record: Any) -> bool:
    """Return whether a record's value holds a time as itself, not as an integer."""
    return any(_has_times(field.hint) for field in fields_of(record) if field.placed is None and field.epoch is None)


def _has_times(hint: Any) -> bool:
    if hasattr(hint, "__metadata__"):
        return not any(isinstance(mark, Epoch) for mark in hint.__metadata__) and _has_times(get_args(hint)[0])
    if dataclasses.is_dataclass(hint):
        return has_times(hint)  # type: ignore[arg-type]  # a class is hashable
    return hint in (datetime, time) or any(map(_has_times, get_args(hint)))


def called(function: Convert | None, argument: str, names: dict[str, Any]) -> str:
    """Return an expression that calls a function, if there is one; put what it refers to into `names`."""
    if function is None:
        return argument
    name = f"f{len(names)}"
    names[name] = function
    return f"{name}({argument})"


def _read_as(hint: Any, read: Convert, qualname: str, write: Convert | None = None) -> Wire:
    """Make a wire whose faults, raised by `read` as ValueErrors, name the field."""

    def placed(value: Any) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise Misread(f"{error}, for {qualname}") from None

    return Wire(hint, placed, write)


def _of_epoch(hint: Any, epoch: Epoch, qualname: str) -> Wire:
    if type(None) in get_args(hint):
        return _or_none(_of_epoch(datetime, epoch, qualname))
    unit_ns = _UNIT_NS[epoch.unit]

    def read(number: int) -> datetime:
        try:
            return _ORIGIN + timedelta(microseconds=number * unit_ns // _MICROSECOND_NS)
        except OverflowError:
            raise ValueError(f"{number} {epoch.unit} since 1970 is beyond what a datetime can hold") from None

    def write(moment: datetime) -> int:
        return (moment - _ORIGIN) // _MICROSECOND * _MICROSECOND_NS // unit_ns

    return _read_as(int, read, qualname, write)


def _of_decimal(hint: Any, precision: Precision, qualname: str) -> Wire:
    """Give a value read the digits of its field, without rounding; a value written has them.

    Codecs leave it as it is, text or number, as msgspec would accept more as a number than JSON or SQL do.
    """
    if type(None) in get_args(hint):
        return _or_none(_of_decimal(Decimal, precision, qualname))
    kind = Fixed(precision.digits, precision.scale)
    return _read_as(Any, lambda value: kind.exactly(decimal_of(value)), qualname)


def _or_none(inner: Wire) -> Wire:
    whole = Union[inner.hint, None]  # type: ignore[name-defined]  # noqa: UP007 - a type made of a value
    return _each(whole, inner, lambda convert: lambda value: None if value is None else convert(value))


def _each(hint: Any, inner: Wire, through: Callable[[Convert], Convert]) -> Wire:
    read = None if inner.read is None else through(inner.read)
    return Wire(hint, read, None if inner.write is None else through(inner.write))


def _inside(record: Any, *, fine: bool) -> Wire:
    """Return the form of a record inside another: all of it is in the value."""
    for field in fields_of(record):
        if field.placed is not None:
            raise SchemaRefused(
                f"{record.__qualname__}.{field.name}: {type(field.placed).__name__} belongs in the message's outermost "
                "record, but this one is inside it",
                way_out="move the field to the outer record",
            )
    return wire_of_record(record, fine=fine)


@cache
def wire_of_record(record: Any, *, fine: bool = False) -> Wire:
    """Return a dataclass as it is, or its twin: a struct of the fields in the value, by their names there."""
    fields = fields_of(record)
    inside = [field for field in fields if field.placed is None]
    wires = {field.name: wire_of_field(field, record, fine=fine) for field in inside}
    changed = any(wire.read is not None or wire.write is not None for wire in wires.values())
    if len(inside) == len(fields) and not changed and not any(field.alias for field in fields):
        return Wire(record)
    twin = _twin(record, inside, wires)
    names: dict[str, Any] = {"T": made_of(record, fine=fine), "W": twin}
    read = ", ".join(f"{name}={called(wire.read, f'v.{name}', names)}" for name, wire in wires.items())
    write = ", ".join(f"{name}={called(wire.write, f'r.{name}', names)}" for name, wire in wires.items())
    # Made of field names, which are identifiers, and of expressions from this file.
    return Wire(twin, eval(f"lambda v: T({read})", names), eval(f"lambda r: W({write})", names))  # noqa: S307


def made_of(record: Any, *, fine: bool) -> Callable[..., Any]:
    """Return the function that makes a record of its fields: its class, or for fine times the codec's constructor."""
    if not fine or record.__dataclass_params__.init:
        return record  # type: ignore[no-any-return]  # a class is what is called

    def make(**fields: Any) -> Any:
        made = object.__new__(record)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        if hasattr(made, "__post_init__"):
            made.__post_init__()
        return made

    return make


def _twin(record: type, inside: list[Field], wires: dict[str, Wire]) -> Any:
    import msgspec

    declared = {field.name: field for field in dataclasses.fields(record)}
    parts: list[Any] = []
    for field in inside:
        wire, own = wires[field.name], declared[field.name]
        made = own.default_factory
        if own.default is not dataclasses.MISSING:
            value = own.default if wire.write is None else wire.write(own.default)
            parts.append((field.name, wire.hint, msgspec.field(default_factory=_constant(value))))
        elif made is not dataclasses.MISSING:
            parts.append((field.name, wire.hint, msgspec.field(default_factory=_made(made, wire.write))))
        else:
            parts.append((field.name, wire.hint))
    rename = {field.name: field.alias for field in inside if field.alias is not None}
    return msgspec.defstruct(record.__name__, parts, rename=rename, kw_only=True)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _made(make: Callable[[], Any], write: Convert | None) -> Callable[[], Any]:
    return make if write is None else lambda: write(make())
