"""Keys as bytes, and messages as JSON, for the second interpreter: after the documentation, by the standard library."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
import struct
import types
import typing
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any

import xxhash


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
    """The hash unit of what has no key: *Partitions* in `docs/deployment.md`."""
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
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


PLACED = ("Key", "Header", "Timestamp", "Topic", "Partition", "Offset", "Tombstone")
UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


def marked(record: Any, word: str) -> dict[str, Any]:
    """The fields of a record with this marker, each with what the marker says."""
    found = {}
    for name, hint in hints_of(record).items():
        for mark in getattr(hint, "__metadata__", ()):
            if type(mark).__name__ == word:
                found[name] = mark
    return found


def _inside(record: Any) -> dict[str, str]:
    """The fields that stand in a record's value, each with its name there."""
    elsewhere = [name for word in PLACED for name in marked(record, word)]
    names = {name: mark.name for name, mark in marked(record, "Alias").items()}
    return {name: names.get(name, name) for name in hints_of(record) if name not in elsewhere}


def writable(value: Any, hint: Any = None) -> bool:
    """True if JSON can write a record's value: an offset from UTC has no seconds there, and no float is NaN."""
    if any(getattr(value, name) for name in marked(type(value), "Tombstone")):
        return True
    if any(type(mark).__name__ == "Epoch" for mark in getattr(hint, "__metadata__", ())):
        return True
    if dataclasses.is_dataclass(value):
        hints, inside = hints_of(typing.cast(Any, type(value))), _inside(type(value))
        return all(writable(getattr(value, name), hints[name]) for name in inside)
    inner = typing.get_args(hint)[-2:-1] if typing.get_origin(hint) is tuple else typing.get_args(hint)[-1:]
    if isinstance(value, list | tuple):
        return all(writable(each, *inner) for each in value)
    if isinstance(value, dict):
        return all(writable(each, *inner) for each in value.values())
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, datetime) or not typing.cast(timedelta, value.utcoffset()).seconds % 60


def written(record: Any) -> bytes | None:
    """The value of a record's message."""
    if any(getattr(record, name) for name in marked(type(record), "Tombstone")):
        return None
    return json.dumps(_wired(record), separators=(",", ":"), ensure_ascii=False).encode()


def _wired(value: Any, hint: Any = None) -> Any:
    for mark in getattr(hint, "__metadata__", ()):
        if type(mark).__name__ == "Epoch" and value is not None:
            return (value - ORIGIN) // timedelta(microseconds=UNITS_US[mark.unit])
    if dataclasses.is_dataclass(value):
        hints, inside = hints_of(typing.cast(Any, type(value))), _inside(type(value))
        return {inside[name]: _wired(getattr(value, name), hint) for name, hint in hints.items() if name in inside}
    inner = typing.get_args(hint)[-2:-1] if typing.get_origin(hint) is tuple else typing.get_args(hint)[-1:]
    if isinstance(value, list | tuple):
        return [_wired(each, *inner) for each in value]
    return {key: _wired(each, *inner) for key, each in value.items()} if isinstance(value, dict) else _plain(value)


def record_of(declared: Any, came: Any) -> Any:
    """A record of a whole message; errors as `loaded`."""
    rest: dict[str, Any] = {}
    hints = hints_of(declared)
    headers = dict(came.headers)
    for name in marked(declared, "Key"):
        rest[name] = _stood(hints[name], came.key)
    for name, mark in marked(declared, "Header").items():
        rest[name] = _stood(hints[name], headers.get(mark.name))
    for word in ("Topic", "Partition", "Offset"):
        rest |= dict.fromkeys(marked(declared, word), getattr(came, word.lower()))
    rest |= dict.fromkeys(marked(declared, "Timestamp"), ORIGIN + timedelta(milliseconds=came.timestamp))
    tombstone = marked(declared, "Tombstone")
    rest |= dict.fromkeys(tombstone, came.value is None)
    return declared(**rest) if came.value is None and tombstone else loaded(declared, came.value, rest)


def _stood(hint: Any, value: bytes | None) -> Any:
    hint = typing.get_args(hint)[0]
    types_ = typing.get_args(hint) or (hint,)
    if value is None:
        if type(None) not in types_:
            raise ValueError("nothing there")
        return None
    if int in types_:
        text = value.decode("ascii")
        if not re.fullmatch("-?[0-9]{1,19}", text):
            raise ValueError(text)
        return _integer(int(text))
    return value.decode() if str in types_ else value


def loaded(declared: Any, message: bytes | None, rest: dict[str, Any] | None = None) -> Any:
    """A record of a message's value; raises ValueError, TypeError, KeyError or AttributeError for one that is none."""
    if message is None:
        raise ValueError("no value")
    text = message.decode()
    if text.startswith("\ufeff"):
        raise ValueError("a byte order mark")
    return _made(declared, json.loads(text, parse_constant=_refused), rest)


def normal(hint: Any, value: Any) -> Any:
    """A value as it comes to another level: ints in float fields are floats, times are in UTC."""
    if hasattr(hint, "__metadata__"):
        hint = typing.get_args(hint)[0]
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
    return typing.get_type_hints(record, include_extras=True)


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _of(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(value)
    return value


def _made(hint: Any, value: Any, rest: dict[str, Any] | None = None) -> Any:
    for mark in getattr(hint, "__metadata__", ()):
        if type(mark).__name__ == "Epoch" and value is not None:
            return ORIGIN + timedelta(microseconds=_of(int, value) * UNITS_US[mark.unit])
    if hasattr(hint, "__metadata__"):
        hint = typing.get_args(hint)[0]
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
        inside = _inside(typing.cast(Any, hint))
        made = {name: _made(hints[name], given[there]) for name, there in inside.items() if there in given}
        return typing.cast(Any, hint)(**made, **(rest or {}))
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
