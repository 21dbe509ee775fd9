"""Columns of a record and their places in its message: in the value as they are, or where a marker puts them.

A dataclass with markers has a twin (`wire.py`), which codecs read and write; one generated expression makes records of
twins and the rest of the message. A dataclass without markers needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import Any, Protocol

from lowtide.flow.schema.headers import Headers, unpack_headers
from lowtide.flow.schema.markers import Header, Key, Marker, Offset, Partition, Timestamp, Tombstone, Topic
from lowtide.flow.schema.marks import Field, bare_of, fields_of
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.schema.wire import Misread, called, made_of, wire_of_field, wire_of_record


class Messages(Protocol):
    """n messages of one source partition.

    Attributes:
        keys: The keys; None where a message has none.
        values: The values; None for Kafka's tombstones.
        headers: Packed (`lowtide.flow.schema.headers`); None if there are none.
        timestamps: The log's timestamps, in ms.
        offsets: The offsets.
        topic: The topic of all.
        partition: The partition of all.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[bytes] | None
    timestamps: list[int]
    offsets: list[int]
    topic: str
    partition: int

    def pick(self, chosen: list[int], /) -> Messages:
        """Return the messages at these indices."""


class Columns:
    """The places of a dataclass's columns in a message.

    Attributes:
        value: The type that a codec reads and writes: the dataclass, or its twin.
        plain: True if all columns are in the value as they are, so that nothing here has to be called.
        key: The column that is the message's key, None if none is.
        has_headers: True if one of them is a header.
        takes_null: True if a message without a value can be a record.
    """

    def __init__(self, record: type, *, fine: bool = False) -> None:
        schema_of(record)  # Refuses all but dataclasses of columns.
        fields = fields_of(record)
        wire = wire_of_record(record, fine=fine)
        placed = {field.name: field.placed for field in fields if field.placed is not None}
        self.value: Any = wire.hint
        self.plain = wire.read is None
        self.key = _named(placed, Key)
        self.has_headers = _named(placed, Header) is not None
        self._headers = [(each.name, attrgetter(name)) for name, each in placed.items() if isinstance(each, Header)]
        self._write = wire.write
        needed = [_PARTS[type(marker)] for marker in placed.values() if type(marker) in _PARTS]
        self._parts = list(dict.fromkeys(needed))
        parts = [name for name, _ in self._parts]
        self._make = _maker(record, fields, parts, null=False, fine=fine)
        self._make_of_null = _maker(record, fields, parts, null=True, fine=fine)
        self._lacking = [field.name for field in fields if field.placed is None and not field.has_default]
        tombstone = _named(placed, Tombstone)
        self.takes_null = tombstone is not None
        self._is_null = attrgetter(tombstone) if tombstone is not None else None

    def rows(self, values: Iterable[Any], messages: Messages) -> list[Any]:
        """Make records of what a codec has read, None where a message has no value.

        Raises:
            Misread: a part of a message is not what its field declares; and whatever a dataclass's constructor raises.
        """
        parts = [part(messages) for _, part in self._parts]
        if not self.takes_null:
            return list(map(self._make, values, *parts))
        rest = zip(*parts, strict=False) if parts else repeat(())
        return [self._row(value, *each) for value, each in zip(values, rest, strict=False)]

    def values(self, rows: Sequence[Any]) -> list[Any]:
        """Return what a codec has to write for each record; None for a tombstone."""
        write, is_null = self._write, self._is_null
        assert write is not None, "plain records are written as they are"
        if is_null is None:
            return list(map(write, rows))
        return [None if is_null(row) else write(row) for row in rows]

    def headers(self, row: Any) -> Headers | None:
        """Return the headers of a record's message, None if it has none."""
        found: Headers = []
        for name, value_of in self._headers:
            value = value_of(row)
            if value is not None:
                found.append((name, value.encode() if type(value) is str else value))
        return found or None

    def _row(self, value: Any, *rest: Any) -> Any:
        if value is not None:
            return self._make(value, *rest)
        if self._lacking:
            raise Misread(f"a null value lacks {self._lacking[0]!r}, which has no default")
        return self._make_of_null(None, *rest)


def columns_of(record: Any, *, fine: bool = False) -> Columns:
    """Return the places of a dataclass's columns, the same object each time; raises SchemaRefused with class and field.

    Args:
        record: The dataclass.
        fine: Read times from their text, so that none is rounded; such columns can only read.
    """
    return _columns_of(record, fine=fine)


@cache
def _columns_of(record: Any, *, fine: bool) -> Columns:
    return Columns(record, fine=fine)


def _named(placed: dict[str, Marker], marker: type) -> str | None:
    return next((name for name, each in placed.items() if isinstance(each, marker)), None)


def _unpacked(messages: Messages) -> Iterable[dict[str, Any]]:
    """Return the headers of each message by name, the last one of each."""
    if messages.headers is None:
        return repeat({})
    return [dict(unpack_headers(packed)) for packed in messages.headers]


_PARTS: dict[type, tuple[str, Callable[[Messages], Iterable[Any]]]] = {
    Key: ("key", lambda messages: messages.keys),
    Header: ("headers", _unpacked),
    Timestamp: ("timestamp", lambda messages: messages.timestamps),
    Offset: ("offset", lambda messages: messages.offsets),
    Topic: ("topic", lambda messages: repeat(messages.topic)),
    Partition: ("partition", lambda messages: repeat(messages.partition)),
}
"""By marker: the name of a message's part in a generated expression, and in a batch."""


def _maker(
    record: type, fields: Sequence[Field], parts: Sequence[str], *, null: bool, fine: bool
) -> Callable[..., Any]:
    """Make the function that makes a record of a value, or of None if `null`, and of the parts of its message."""
    names: dict[str, Any] = {"T": made_of(record, fine=fine)}
    arguments = []
    for field in fields:
        if field.placed is not None:
            arguments.append(f"{field.name}={_place(field, field.placed, names, null=null)}")
        elif not null:
            arguments.append(
                f"{field.name}={called(wire_of_field(field, record, fine=fine).read, f'v.{field.name}', names)}"
            )
    # Made of field names, which are identifiers, and of expressions from this file.
    make: Callable[..., Any] = eval(f"lambda {', '.join(['v', *parts])}: T({', '.join(arguments)})", names)  # noqa: S307
    return make


def _place(field: Field, marker: Marker, names: dict[str, Any], *, null: bool) -> str:
    """Return an expression for a field that is not in the value."""
    bare = bare_of(field.hint)
    match marker:
        case Tombstone():
            return str(null)
        case Header(name):
            text = _text(f"header {name!r}") if bare is str else None
            convert = text if bare is not field.hint else _needed(f"header {name!r}", field, text)
            return called(convert, f"headers.get({name!r})", names)
        case Key():
            whole = {str: _text("the key"), int: _number}.get(bare)
            return called(whole if bare is not field.hint else _needed("key", field, whole), "key", names)
        case Timestamp():
            return called(_moment, "timestamp", names)
        case _:
            return _PARTS[type(marker)][0]


def _needed(what: str, field: Field, convert: Callable[[bytes | None], Any] | None) -> Callable[[bytes | None], Any]:
    hint = f"declare {field.name!r} as {bare_of(field.hint).__name__} | None if it may lack one"

    def needed(value: bytes | None) -> Any:
        if value is None:
            raise Misread(f"the message has no {what}; {hint}")
        return value if convert is None else convert(value)

    return needed


def _text(what: str) -> Callable[[bytes | None], str | None]:
    def text(value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError as error:
            raise Misread(f"{what} is not UTF-8 text: {error}") from None

    return text


def _number(key: bytes | None) -> int | None:
    if key is None:
        return None
    if not key.removeprefix(b"-").isdigit() or len(key) > _DIGITS:
        raise Misread(f"the key is not a decimal integer: {key[:_DIGITS]!r}")
    return int(key)


_DIGITS = 20
"""The length of the longest 64-bit integer, with its sign."""

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(milliseconds: int) -> datetime:
    try:
        return _ORIGIN + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise Misread(f"the log's timestamp {milliseconds} is beyond what a datetime can hold") from None
