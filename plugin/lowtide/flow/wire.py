"""The form that records have in a message's value, where it is not that of the dataclass: its twin, and the ways there.

A wire is made of a type, not of a codec: JSON, Avro and Protobuf share it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from lowtide.flow.markers import Epoch, Precision
from lowtide.flow.marks import Field, fields_of
from lowtide.flow.plain_kinds import Fixed
from lowtide.flow.schema import SchemaRefused

__all__ = ["Misread", "Wire", "called", "wire_of_field", "wire_of_record"]

Convert = Callable[[Any], Any]

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


class Misread(Exception):
    """A part of a message is not what its field declares."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wire:
    """The form of a type in a value.

    Attributes:
        hint: The type that codecs read and write.
        read: Makes a value of the type of one of `hint`; None where they are the same.
        write: The other way round.
    """

    hint: Any
    read: Convert | None = None
    write: Convert | None = None


def wire_of(hint: Any) -> Wire:  # noqa: PLR0911 - one per type
    """The form of any type that a field may have."""
    if hasattr(hint, "__metadata__"):
        inner = get_args(hint)[0]
        for mark in hint.__metadata__:
            if isinstance(mark, Epoch):
                return _of_epoch(inner, mark)
            if isinstance(mark, Precision):
                return _of_decimal(inner, mark)
        return wire_of(inner)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _or_none(wire_of(next(each for each in arguments if each is not type(None))))
    if origin in (list, tuple):
        item = wire_of(arguments[0])
        whole: Any = list[item.hint] if origin is list else tuple[item.hint, ...]  # type: ignore[name-defined]
        return _each(whole, item, lambda convert: lambda values: origin(map(convert, values)))
    if origin is dict:
        item = wire_of(arguments[1])
        whole = dict[str, item.hint]  # type: ignore[name-defined]  # a type made of a value
        return _each(whole, item, lambda convert: lambda values: {key: convert(each) for key, each in values.items()})
    return _inside(hint) if dataclasses.is_dataclass(hint) else Wire(hint)


def wire_of_field(field: Field) -> Wire:
    """The form of a field that stands in the value."""
    return wire_of(field.hint) if field.epoch is None else _of_epoch(field.hint, field.epoch)


def called(function: Convert | None, argument: str, names: dict[str, Any]) -> str:
    """An expression that calls a function, if there is one; what it refers to is put into `names`."""
    if function is None:
        return argument
    name = f"f{len(names)}"
    names[name] = function
    return f"{name}({argument})"


def _of_epoch(hint: Any, epoch: Epoch) -> Wire:
    if type(None) in get_args(hint):
        return _or_none(_of_epoch(datetime, epoch))
    factor = _UNIT_US[epoch.unit]

    def read(number: int) -> datetime:
        try:
            return _ORIGIN + timedelta(microseconds=number * factor)
        except OverflowError:
            raise Misread(f"{number} {epoch.unit} since 1970 is no time that a datetime can hold") from None

    def write(moment: datetime) -> int:
        return (moment - _ORIGIN) // timedelta(microseconds=factor)

    return Wire(int, read, write)


def _of_decimal(hint: Any, precision: Precision) -> Wire:
    """What is read gets the digits of its field, without being rounded; what is written has them."""
    if type(None) in get_args(hint):
        return _or_none(_of_decimal(Decimal, precision))
    kind = Fixed(precision.digits, precision.scale)

    def read(value: Decimal) -> Decimal:
        try:
            return kind.exactly(value)
        except ValueError as error:
            raise Misread(str(error)) from None

    return Wire(Decimal, read)


def _or_none(inner: Wire) -> Wire:
    whole = Union[inner.hint, None]  # type: ignore[name-defined]  # noqa: UP007 - a type made of a value
    return _each(whole, inner, lambda convert: lambda value: None if value is None else convert(value))


def _each(hint: Any, inner: Wire, through: Callable[[Convert], Convert]) -> Wire:
    read = None if inner.read is None else through(inner.read)
    return Wire(hint, read, None if inner.write is None else through(inner.write))


def _inside(record: Any) -> Wire:
    """A record in another one: all of it stands in the value."""
    for field in fields_of(record):
        if field.placed is not None:
            raise SchemaRefused(
                f"{record.__qualname__}.{field.name}: {type(field.placed).__name__} marks a field of the message's own "
                "record, and this one stands inside of it",
                way_out="move the field to the outer record",
            )
    return wire_of_record(record)


@cache
def wire_of_record(record: Any) -> Wire:
    """A dataclass as it is, or as its twin: a struct of the fields in the value, by their names there."""
    fields = fields_of(record)
    inside = [field for field in fields if field.placed is None]
    wires = {field.name: wire_of_field(field) for field in inside}
    changed = any(wire.read is not None or wire.write is not None for wire in wires.values())
    if len(inside) == len(fields) and not changed and not any(field.alias for field in fields):
        return Wire(record)
    twin = _twin(record, inside, wires)
    names: dict[str, Any] = {"T": record, "W": twin}
    read = ", ".join(f"{name}={called(wire.read, f'v.{name}', names)}" for name, wire in wires.items())
    write = ", ".join(f"{name}={called(wire.write, f'r.{name}', names)}" for name, wire in wires.items())
    # Made of field names, which are identifiers, and of what stands in this file.
    return Wire(twin, eval(f"lambda v: T({read})", names), eval(f"lambda r: W({write})", names))  # noqa: S307


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
