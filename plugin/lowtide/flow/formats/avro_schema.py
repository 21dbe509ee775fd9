"""The Avro schema of a dataclass: what stands in a value, each field with its default as far as Avro can say it.

Defaults let a registry accept a dataclass that has gained a field: a reader of older messages then finds the same value
as the flow does.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

from lowtide.errors import FlowError

_PLAIN: dict[Any, Any] = {
    str: "string",
    bytes: "bytes",
    int: "long",
    float: "double",
    bool: "boolean",
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    UUID: {"type": "string", "logicalType": "uuid"},
}
_EPOCH_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class Known(dict[str, Any]):
    """The records that a schema has spelt out, by name: from then on they go by that."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, Any] = {}


class NamesCollide(FlowError):
    """Rename a dataclass or give schema=: two dataclasses of one name would share the first one's schema."""


class _Unsaid(Exception):
    """Avro cannot express this default: a union's default has its first type, and no number is infinite."""


@cache
def schema_text(record: Any) -> str:
    """The schema of a dataclass's value, as JSON: the same text each time.

    A record's name is its class's, without module or outer class: a registry accepts a changed schema only under the
    name that it knows.

    Raises:
        NamesCollide: two dataclasses in it have one name.
    """
    return json.dumps(_record(record, Known()), separators=(",", ":"))


def _record(record: Any, known: Known) -> Any:
    from lowtide.flow.schema.columns import columns_of

    columns_of(record)  # Refuses what is not a record.
    name = record.__name__
    if name in known:
        _refuse_another(known.classes[name], record)
        return name
    known.classes[name] = record
    fields: list[dict[str, Any]] = []
    schema = known[name] = {"type": "record", "name": name, "fields": fields}
    for field in _written(record):
        kind = _type(int if field.epoch is not None and not _optional(field.hint) else field.hint, known, field.epoch)
        fields.append({"name": field.alias or field.name, **_with_default(record, field, kind, known)})
    return schema


def _refuse_another(known: Any, record: Any) -> None:
    if known is not record:
        names = " and ".join(f"{each.__module__}.{each.__qualname__}" for each in (known, record))
        raise NamesCollide(
            f"{names} are both record {record.__name__!r} in one Avro schema",
            way_out="rename the one whose schema is not registered yet, or give the schema: lt.avro(..., schema=...)",
        )


def _written(record: Any) -> list[Any]:
    """The fields that stand in the value."""
    from lowtide.flow.schema.marks import fields_of

    return [field for field in fields_of(record) if field.placed is None]


def _type(hint: Any, known: Known, epoch: Any = None) -> Any:  # noqa: PLR0911 - one per type
    from lowtide.flow.schema.markers import Epoch, Precision
    from lowtide.flow.schema.marks import bare_of

    if hasattr(hint, "__metadata__"):
        return _marked(hint, known, Epoch, Precision)
    if _optional(hint):
        return ["null", "long" if epoch is not None else _type(bare_of(hint), known)]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple):
        return {"type": "array", "items": _type(arguments[0], known)}
    if origin is dict:
        return {"type": "map", "values": _type(arguments[1], known)}
    if hint in _PLAIN:
        return _PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return _record(hint, known)
    # As text: members may come and go, and Avro's symbols would change with them.
    members = [member.value for member in hint] if isinstance(hint, type) and issubclass(hint, Enum) else arguments
    assert origin is Literal or isinstance(hint, type), f"no Avro of {hint}"
    return _PLAIN[type(members[0])]


def _marked(hint: Any, known: Known, epoch: type, precision: type) -> Any:
    inner = get_args(hint)[0]
    for mark in hint.__metadata__:
        if isinstance(mark, epoch):
            return ["null", "long"] if _optional(inner) else "long"
        if isinstance(mark, precision):
            exact = {"type": "bytes", "logicalType": "decimal", "precision": mark.digits, "scale": mark.scale}  # type: ignore[attr-defined]
            return ["null", exact] if _optional(inner) else exact
    return _type(inner, known)


def _optional(hint: Any) -> bool:
    from lowtide.flow.schema.marks import bare_of

    return bare_of(hint) is not hint


# -- defaults ----------------------------------------------------------------------------------------------------------


def _with_default(record: Any, field: Any, kind: Any, known: Known) -> dict[str, Any]:
    """A field's type and its default; of a union the first type is the default's."""
    if not field.has_default:
        return {"type": kind}
    (declared,) = [each for each in dataclasses.fields(record) if each.name == field.name]
    factory: Any = declared.default_factory
    value = declared.default if factory is dataclasses.MISSING else factory()
    turned = [kind[1], kind[0]] if isinstance(kind, list) and value is not None else kind
    try:
        return {"type": turned, "default": _said(value, turned, known, field.epoch)}
    except _Unsaid:
        return {"type": kind}


def _said(value: Any, kind: Any, known: Known, epoch: Any = None) -> Any:
    """A value as a default of a type, in Avro's JSON."""
    value = value.value if isinstance(value, Enum) else value
    if isinstance(kind, list):
        kind = kind[0]
        if (value is None) != (kind == "null"):
            raise _Unsaid
    kind = known.get(kind, kind) if isinstance(kind, str) else kind
    if isinstance(kind, dict) and kind["type"] == "record":
        return _said_record(value, kind, known)
    if isinstance(kind, dict) and kind["type"] == "array":
        return [_said(each, kind["items"], known) for each in value]
    if isinstance(kind, dict) and kind["type"] == "map":
        return {name: _said(each, kind["values"], known) for name, each in value.items()}
    if isinstance(value, Decimal):
        return _unscaled(value, kind["scale"])
    if isinstance(value, datetime):
        from lowtide.flow.time.moments import micros_of

        return micros_of(value) * 1_000 // (1_000 if epoch is None else _EPOCH_NS[epoch.unit])
    if isinstance(value, float) and not math.isfinite(value):
        raise _Unsaid
    say = _SAYS.get(type(value))
    return value if say is None else say(value)


def _said_record(value: Any, kind: Any, known: Known) -> dict[str, Any]:
    found = {}
    for field, entry in zip(_written(type(value)), kind["fields"], strict=True):
        found[entry["name"]] = _said(getattr(value, field.name), entry["type"], known, field.epoch)
    return found


def _unscaled(value: Decimal, scale: int) -> str:
    """Return a Decimal's digits as bytes, in JSON as characters of the same numbers."""
    number = int(value.scaleb(scale))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True).decode("latin-1")


_SAYS: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: value.decode("latin-1"),
    date: lambda value: (value - date(1970, 1, 1)).days,
    time: lambda value: ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond,
    UUID: str,
}
