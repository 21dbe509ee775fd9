"""The canonical bytes of a key, version 1, as `snapshots/README.md` defines them.

Two keys are the same key if, and only if, their bytes are the same. The bytes depend on the values alone: not on
Arrow's layout or integer width, nor on process, machine or Python version.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence

from lowtide_snapshots.errors import KeyRefused

KEY_ENCODING_VERSION = 1
KEY_TYPES = "null, bool, int (64 bits with sign), text, bytes, date, timestamp (microseconds)"

KeyValue = None | bool | int | str | bytes | datetime.date | datetime.datetime

_INTEGER = struct.Struct("<Bq")
_LENGTH = struct.Struct("<I")
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = _EPOCH.date().toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)


def encode_value(value: KeyValue) -> bytes:
    """Return one value's bytes: a type tag and the value.

    Args:
        value: a value of a key; subclasses (an `enum.StrEnum`, say) count as their base.

    Raises:
        KeyRefused: the type is not among the key types, or an integer does not fit into 64 bits with sign.
    """
    encode = _ENCODERS.get(type(value))
    if encode is None:
        encode = next((found for kind, found in _ENCODERS.items() if isinstance(value, kind)), _refuse)
    return encode(value)


def encode_key(values: Sequence[KeyValue]) -> bytes:
    """Return a key's bytes: its only value's, or each value's with their length (4 bytes) before them.

    Args:
        values: one value per key column, in the order the flow names them.

    Raises:
        KeyRefused: a value has no encoding, or there is none.
    """
    if not values:
        raise KeyRefused("a key has at least one column")
    return join([encode_value(value) for value in values])


def join(encoded: Sequence[bytes]) -> bytes:
    """Return the bytes of a key whose columns have these bytes; at least one."""
    if len(encoded) == 1:
        return encoded[0]
    return b"".join([part for value in encoded for part in (_LENGTH.pack(len(value)), value)])


def encode_days(days: int | None) -> bytes:
    """Return the bytes of a date, given in days since 1970-01-01, or of null."""
    return b"\x00" if days is None else _INTEGER.pack(5, days)


def encode_microseconds(microseconds: int | None) -> bytes:
    """Return the bytes of a timestamp, given in microseconds since 1970-01-01 (UTC if it has a zone), or of null."""
    return b"\x00" if microseconds is None else _INTEGER.pack(6, microseconds)


def _refuse(value: object) -> bytes:
    if isinstance(value, float):
        raise KeyRefused(
            f"a float cannot be a key ({value!r}): nearly equal floats are different keys, and NaN is not even equal "
            "to itself; use an integer, or text with a fixed number of digits"
        )
    raise KeyRefused(f"a {type(value).__name__} cannot be a key ({value!r}); key types are: {KEY_TYPES}")


def _integer(value: int) -> bytes:
    try:
        return _INTEGER.pack(2, value)
    except struct.error:
        raise KeyRefused(f"the integer {value} does not fit into 64 bits with sign; use text or bytes") from None


def _text(value: str) -> bytes:
    try:
        return b"\x03" + value.encode()
    except UnicodeEncodeError as error:
        raise KeyRefused(f"the text {value!r} cannot be encoded in UTF-8 ({error.reason}); use bytes") from None


def _timestamp(value: datetime.datetime) -> bytes:
    since = value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)
    return encode_microseconds(since // _MICROSECOND)


# The exact type is looked up first; then the first base in this order, where bool stands before int and
# datetime before date, which they are subclasses of.
_ENCODERS: dict[type, Callable[..., bytes]] = {
    type(None): lambda _: b"\x00",
    bool: lambda value: b"\x01\x01" if value else b"\x01\x00",
    int: _integer,
    str: _text,
    bytes: lambda value: b"\x04" + value,
    datetime.datetime: _timestamp,
    datetime.date: lambda value: encode_days(value.toordinal() - _EPOCH_DAY),
}
