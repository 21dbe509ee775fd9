"""Reads the markers of a dataclass's fields, and refuses those that do not fit each other or their field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from lowtide.flow.schema.markers import (
    MARKERS,
    Alias,
    Epoch,
    Header,
    Key,
    Marker,
    Offset,
    Partition,
    Precision,
    Tombstone,
    Topic,
)
from lowtide.flow.schema.schema import SchemaRefused, said

_BESIDE = (Alias, Epoch)
"""Markers of fields in the value; all others mark fields that are elsewhere in the message."""

_TYPES: dict[type, tuple[type, ...]] = {
    Key: (str, bytes, int),
    Header: (str, bytes),
    Topic: (str,),
    Partition: (int,),
    Offset: (int,),
    Tombstone: (bool,),
}
"""The types that a marked field may have; a `datetime` unless listed."""

_OPTIONAL = (Key, Header, Epoch)
"""Markers of fields that may be None too."""


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a dataclass.

    Attributes:
        name: Its name.
        hint: Its type, without markers of the whole field, but with its precision.
        placed: The marker of its place, if it is not in the value.
        alias: Its name in the value, None if that is its own.
        epoch: The marker of an integer that is a time, None if there is none.
        has_default: True if a record can be made without it.
        default_is_none: True if it is None then.
    """

    name: str
    hint: Any
    placed: Marker | None
    alias: str | None
    epoch: Epoch | None
    has_default: bool
    default_is_none: bool = False


@cache
def fields_of(record: Any) -> tuple[Field, ...]:
    """Return the fields of a dataclass with their markers; raises SchemaRefused with class and field."""
    hints = get_type_hints(record, include_extras=True)
    found = tuple(_field(record, field, hints[field.name]) for field in dataclasses.fields(record))
    _refuse_twice(record, found)
    return found


def bare_of(hint: Any) -> Any:
    """Return a type without `| None`."""
    others = [each for each in get_args(hint) if each is not type(None)]
    return others[0] if len(others) == 1 and type(None) in get_args(hint) else hint


def _field(record: type, field: dataclasses.Field[Any], hint: Any) -> Field:
    qualname = f"{record.__qualname__}.{field.name}"
    whole = hint if hasattr(hint, "__metadata__") else None
    inner = hint if whole is None else get_args(hint)[0]
    for stray in _markers_in(inner):
        if not isinstance(stray, Epoch):
            name = type(stray).__name__
            raise SchemaRefused(
                f"{qualname}: {name} marks a whole field: write Annotated[{said(inner)}, lt.{name}(...)]"
            )
    said_of_all = () if whole is None else whole.__metadata__
    precise = next((mark for mark in said_of_all if isinstance(mark, Precision)), None)
    marks = [mark for mark in said_of_all if isinstance(mark, MARKERS)]
    for mark in said_of_all:
        if mark in MARKERS:
            name = mark.__name__
            raise SchemaRefused(f"{qualname}: {name} is not a marker without its brackets: write lt.{name}()")
    placed = [mark for mark in marks if not isinstance(mark, _BESIDE)]
    kinds = [type(mark) for mark in marks]
    if len(placed) > 1 or (placed and len(marks) > 1) or len(set(kinds)) < len(kinds):
        raise SchemaRefused(
            f"{qualname}: {' and '.join(kind.__name__ for kind in kinds)} do not go together; "
            "a field is in one place, and has one name there"
        )
    for mark in marks:
        _check(qualname, mark, inner)
    alias = next((mark.name for mark in marks if isinstance(mark, Alias)), None)
    epoch = next((mark for mark in marks if isinstance(mark, Epoch)), None)
    missing = dataclasses.MISSING
    has_default = field.default is not missing or field.default_factory is not missing
    inner = inner if precise is None else Annotated[inner, precise]
    return Field(field.name, inner, placed[0] if placed else None, alias, epoch, has_default, field.default is None)


def _markers_in(hint: Any) -> Iterator[Marker]:
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, MARKERS):
            yield mark
    for argument in get_args(hint):
        if not isinstance(argument, str | int):
            yield from _markers_in(argument)


def _check(qualname: str, mark: Marker, hint: Any) -> None:
    """Refuse a marker that does not fit the type of its field, or has no name."""
    if isinstance(mark, Alias | Header):
        if not isinstance(mark.name, str) or not mark.name:
            raise SchemaRefused(f"{qualname}: {type(mark).__name__} takes a name, found {mark.name!r}")
        if isinstance(mark, Alias):
            return
    if isinstance(mark, Epoch) and mark.unit not in ("s", "ms", "us", "ns"):
        raise SchemaRefused(f'{qualname}: Epoch takes "s", "ms", "us" or "ns", found {mark.unit!r}')
    allowed = _TYPES.get(type(mark), (datetime,))
    bare = bare_of(hint)
    if bare not in allowed or (bare is not hint and not isinstance(mark, _OPTIONAL)):
        types = " or ".join(each.__name__ for each in allowed)
        more = ", or that | None" if isinstance(mark, _OPTIONAL) else ""
        raise SchemaRefused(f"{qualname}: {type(mark).__name__} marks {types}{more}, found {said(hint)}")


def _refuse_twice(record: type, fields: tuple[Field, ...]) -> None:
    """Refuse two fields with one place."""
    taken: dict[object, str] = {}
    for field in fields:
        place: object = field.placed if field.placed is not None else field.alias or field.name
        if place in taken:
            where = f"the name {place!r} in the value" if field.placed is None else f"the place {place}"
            raise SchemaRefused(f"{record.__qualname__}.{field.name}: {where} is already taken by {taken[place]!r}")
        taken[place] = field.name
