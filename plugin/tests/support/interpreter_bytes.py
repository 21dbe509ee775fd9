"""Keys as bytes, and messages as JSON, for the second interpreter: after the documentation, by the standard library."""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
import types
import typing
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from enum import Enum
from functools import cache
from typing import Any

import xxhash

__all__ = ["dumped", "loaded", "normal", "unit_of", "unit_of_front"]


def unit_of(key: Sequence[Any], units: int) -> int:
    """The hash unit of a key: `snapshots/README.md`."""
    return xxhash.xxh3_64_intdigest(whole_bytes(key)) % units


def whole_bytes(key: Sequence[Any]) -> bytes:
    """The canonical bytes of a key, of the same place."""
    parts = [key_bytes(value) for value in key]
    return parts[0] if len(parts) == 1 else b"".join(struct.pack("<I", len(part)) + part for part in parts)


def key_bytes(value: Any) -> bytes:
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return b"\x00"
    if isinstance(value, bool):
        return b"\x01" + bytes([value])
    if isinstance(value, int):
        return b"\x02" + struct.pack("<q", value)
    if isinstance(value, str):
        return b"\x03" + value.encode()
    if isinstance(value, bytes):
        return b"\x04" + value
    if isinstance(value, datetime):
        since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return b"\x06" + struct.pack("<q", (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds)
    assert isinstance(value, date)
    return b"\x05" + struct.pack("<q", value.toordinal() - date(1970, 1, 1).toordinal())


def unit_of_front(front: int, units: int) -> int:
    """The hash unit of what has no key: *Partitions* in `docs/operations.md`."""
    return ((front * 0x9E3779B97F4A7C15 % 2**64) >> 32) * units >> 32


def dumped(record: Any) -> bytes:
    """A record as JSON."""
    return json.dumps(_plain(record), separators=(",", ":"), ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def loaded(declared: Any, message: bytes | None) -> Any:
    """A record of a message; raises ValueError, TypeError, KeyError or AttributeError for one that is none."""
    if message is None:
        raise ValueError("no value")
    text = message.decode()
    if text.startswith("\ufeff"):
        raise ValueError("a byte order mark")
    return _made(declared, json.loads(text, parse_constant=_refused))


def normal(hint: Any, value: Any) -> Any:
    """A value as it comes to another level: ints in float fields are floats, times are in UTC."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(each for each in arguments if each is not type(None))
        return None if value is None else normal(inner, value)
    if origin in (list, tuple):
        return origin(normal(arguments[0], each) for each in value)
    if origin is dict:
        return {key: normal(arguments[1], each) for key, each in value.items()}
    if dataclasses.is_dataclass(hint):
        hints = hints_of(typing.cast(Any, hint))
        names = [field.name for field in dataclasses.fields(typing.cast(Any, hint))]
        return typing.cast(Any, hint)(**{name: normal(hints[name], getattr(value, name)) for name in names})
    if hint is datetime:
        return value.astimezone(UTC)
    return float(value) if hint is float else value


@cache
def hints_of(record: Any) -> dict[str, Any]:
    return typing.get_type_hints(record)


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _of(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(value)
    return value


def _made(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(each for each in arguments if each is not type(None))
        return None if value is None else _made(inner, value)
    if origin in (list, tuple):
        return origin(_made(arguments[0], each) for each in _of(list, value))
    if origin is dict:
        return {_made(str, key): _made(arguments[1], each) for key, each in _of(dict, value).items()}
    if origin is typing.Literal:
        return arguments[arguments.index(_of(type(arguments[0]), value))]
    if dataclasses.is_dataclass(hint):
        hints, given = hints_of(typing.cast(Any, hint)), _of(dict, value)
        fields = [field.name for field in dataclasses.fields(typing.cast(Any, hint))]
        return typing.cast(Any, hint)(**{name: _made(hints[name], given[name]) for name in fields if name in given})
    return SCALARS[hint](value) if hint in SCALARS else hint(value)  # What is left is an enumeration.


def _text(value: Any) -> str:
    found: str = _of(str, value)
    found.encode()
    return found


def _integer(value: Any) -> int:
    found: int = _of(int, value)
    if not -(2**63) <= found < 2**63:
        raise ValueError("more than 64 bits")
    return found


def _moment(value: Any) -> datetime:
    made = datetime.fromisoformat(_of(str, value))
    if made.tzinfo is None:
        raise ValueError("no offset")
    return made.astimezone(UTC)


SCALARS: dict[Any, Callable[[Any], Any]] = {
    str: _text,
    int: _integer,
    float: lambda value: float(value) if type(value) is int else _of(float, value),
    bool: lambda value: _of(bool, value),
    bytes: lambda value: base64.b64decode(_of(str, value), validate=True),
    date: lambda value: date.fromisoformat(_of(str, value)),
    datetime: _moment,
}
