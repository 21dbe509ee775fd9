"""Protobuf messages as records: fields are matched by name; a dataclass may have fewer than the message."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, get_origin
from uuid import UUID

from lowtide.errors import FlowError
from lowtide.flow.schema.texts import cut
from lowtide.flow.site import user_site

if TYPE_CHECKING:
    from lowtide.flow.formats.reading import Decoded, Reading
    from lowtide.flow.formats.writable import Writable
    from lowtide.flow.schema.columns import Messages
    from lowtide.flow.schema.marks import Field

T = TypeVar("T")
Convert = Callable[[Any], Any]

_TIMESTAMP = "google.protobuf.Timestamp"
_AS_TEXT = (Decimal, UUID, date, time)
_MICROSECOND_NS = 1_000
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclasses.dataclass(frozen=True, slots=True)
class ProtobufFormat(Generic[T]):
    """One serialized message of a generated class per value, read and written as the dataclass `record`."""

    record: type[T]
    message: Any

    def decode(self, messages: Messages) -> Decoded[T]:
        """Parse the messages one by one and check that the records fit."""
        return _reading(self.record, self.message).decode(messages)  # type: ignore[arg-type]  # classes are hashable

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Write the records one by one; maps in the order of their keys, so that equal records give equal bytes."""
        from lowtide.flow.schema.columns import columns_of

        record: Any = self.record
        columns, write = columns_of(record), _codec(record, self.message).write
        values = rows if columns.plain else columns.values(rows)
        return [None if value is None else write(value).SerializeToString(deterministic=True) for value in values]

    @property
    def writable(self) -> Writable:
        """The values that the message's fields can hold."""
        from lowtide.flow.formats.protobuf_writable import protobuf_writable

        return protobuf_writable(self.record, self.message)  # type: ignore[arg-type]  # classes are hashable

    def __reduce__(self) -> tuple[Any, ...]:
        """Send descriptors: generated classes cannot be pickled, and workers lack their modules."""
        files: dict[str, bytes] = {}
        _collect(self.message.DESCRIPTOR.file, files)
        return _again, (self.record, tuple(files.values()), self.message.DESCRIPTOR.full_name)

    def __str__(self) -> str:
        return f"Protobuf ({self.message.DESCRIPTOR.full_name})"


def protobuf(record: type[T], message: type[Any]) -> ProtobufFormat[T]:
    """Messages are the generated class `message`; its fields become those of the dataclass `record`, by name.

    Args:
        record: The dataclass; each field in its value is a field of the message, of a type that fits.
        message: A class that `protoc` has generated.

    Example:
        >>> from google.protobuf.source_context_pb2 import SourceContext  # Yours is what protoc has made.
        >>> @dataclass(frozen=True)
        ... class Source:
        ...     file_name: str
        >>> flow.read("sources", lt.kafka("sources", lt.protobuf(Source, SourceContext)))
        Stream('shop', 'sources')
    """
    try:
        from google.protobuf.message import Message
    except ImportError:
        raise FlowError(
            "protobuf() needs the package protobuf", where=str(user_site()), way_out="pip install 'lowtide[protobuf]'"
        ) from None
    if not isinstance(message, type) or not issubclass(message, Message):
        raise FlowError(f"protobuf() takes a generated message class, found {message!r}", where=str(user_site()))
    made = ProtobufFormat(record, message)
    try:
        _codec(record, message)  # type: ignore[arg-type]  # classes are hashable
    except FlowError as error:
        raise type(error)(error.what, where=error.where or str(user_site()), way_out=error.way_out) from None
    return made


@cache
def _reading(record: Any, message: Any) -> Reading:
    import msgspec
    from google.protobuf.message import DecodeError

    from lowtide.flow.formats.reading import Reading
    from lowtide.flow.schema.columns import columns_of

    columns, codec = columns_of(record), _codec(record, message)

    def parse(data: bytes | None) -> Any:
        if data is None:
            raise DecodeError
        return msgspec.convert(codec.read(message.FromString(data)), columns.value, builtin_types=(datetime, bytes))

    null = "a null value is not a Protobuf message"
    return Reading(record, columns, parse, (DecodeError, msgspec.ValidationError), null)


class _Codec:
    """A message and a dataclass, field by field.

    Attributes:
        read: Makes a dict of a message, by the fields' names there; what is absent is left out.
        write: Makes a message of a record, or of its twin.
    """

    def __init__(self, record: type, message: Any) -> None:
        self._message = message
        self._fields = [_Part(record, field, message.DESCRIPTOR) for field in _inside(record)]

    def read(self, message: Any) -> dict[str, Any]:
        found = {}
        for part in self._fields:
            if part.is_there(message):
                found[part.there] = part.read(getattr(message, part.there))
            elif part.none:
                found[part.there] = None
        return found

    def write(self, value: Any) -> Any:
        found = {part.there: getattr(value, part.here) for part in self._fields}
        given = {part.there: part.write(found[part.there]) for part in self._fields if found[part.there] is not None}
        return self._message(**given)


class _Part:
    """One field.

    Attributes:
        here: Its name in the dataclass.
        there: Its name in the message.
        none: True if it is None where the message lacks it.
        read: Makes it of the message's value.
        write: The other way round.
    """

    def __init__(self, record: type, field: Field, message: Any) -> None:
        self.here = field.name
        self.there = field.alias or field.name
        qualname = f"{record.__qualname__}.{field.name}"
        descriptor = message.fields_by_name.get(self.there)
        if descriptor is None:
            known = ", ".join(message.fields_by_name)
            raise FlowError(f"{qualname}: message {message.full_name} has no field {self.there!r}; it has {known}")
        hint = bare_type(field.hint)
        self.none = hint is not field.hint and type(None) in get_args(_unmarked(field.hint)) and not field.has_default
        self._presence = descriptor.has_presence
        self.read, self.write = _converters(qualname, int if field.epoch is not None else hint, descriptor)

    def is_there(self, message: Any) -> bool:
        """Return whether a message has it; a field without presence is always there."""
        return not self._presence or message.HasField(self.there)


@cache
def _codec(record: Any, message: Any) -> _Codec:
    return _Codec(record, message)


def _inside(record: Any) -> list[Field]:
    from lowtide.flow.schema.columns import columns_of
    from lowtide.flow.schema.marks import fields_of

    columns_of(record)  # Refuses what is not a record.
    return [field for field in fields_of(record) if field.placed is None]


def _converters(qualname: str, hint: Any, descriptor: Any) -> tuple[Convert, Convert]:
    """Return the functions that read and write a field of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    entry = (
        descriptor.message_type if descriptor.message_type and descriptor.message_type.GetOptions().map_entry else None
    )
    if origin is dict and entry is not None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        if key.cpp_type != key.CPPTYPE_STRING:
            raise FlowError(f"{qualname}: a map's keys must be str, but those of field {descriptor.full_name} are not")
        read, write = _one(qualname, arguments[1], value)
        return (
            lambda values: {key: read(values[key]) for key in sorted(values)},
            lambda values: {key: write(value) for key, value in values.items()},
        )
    if origin in (list, tuple) and descriptor.is_repeated and entry is None:
        read, write = _one(qualname, arguments[0], descriptor)
        return lambda values: list(map(read, values)), lambda values: list(map(write, values))
    if origin in (list, tuple, dict) or descriptor.is_repeated:
        raise _misfit(qualname, hint, descriptor)
    return _one(qualname, hint, descriptor)


def _one(qualname: str, hint: Any, descriptor: Any) -> tuple[Convert, Convert]:  # noqa: PLR0911 - one per type
    """As `_converters`, for a single value."""
    hint, kind = bare_type(hint), descriptor.cpp_type
    if descriptor.message_type is not None:
        from google.protobuf.message_factory import GetMessageClass

        message = GetMessageClass(descriptor.message_type)
        if hint is datetime and descriptor.message_type.full_name == _TIMESTAMP:
            return _moment, lambda moment: message(**_since(moment))
        if dataclasses.is_dataclass(hint):
            inner: Any = hint
            codec = _codec(inner, message)
            return codec.read, codec.write
        raise _misfit(qualname, hint, descriptor)
    if descriptor.enum_type is not None:
        return _of_enum(qualname, hint, descriptor)
    if isinstance(hint, type) and issubclass(hint, Enum):
        read, write = _one(qualname, type(next(iter(hint)).value), descriptor)
        return read, lambda member: write(member.value)
    if get_origin(hint) is Literal:
        return _one(qualname, type(get_args(hint)[0]), descriptor)
    if hint in _AS_TEXT and kind == descriptor.CPPTYPE_STRING and descriptor.type == descriptor.TYPE_STRING:
        return (cut if hint is time else _same), str
    if hint not in _types_of(descriptor):
        raise _misfit(qualname, hint, descriptor)
    return _same, _same


def _of_enum(qualname: str, hint: Any, descriptor: Any) -> tuple[Convert, Convert]:
    """Convert an Enum's members by their names, or by their numbers."""
    members = [member.value for member in hint] if isinstance(hint, type) and issubclass(hint, Enum) else get_args(hint)
    value_of: Convert = (lambda member: member.value) if isinstance(hint, type) else _same
    if not members and hint is not int:
        raise _misfit(qualname, hint, descriptor)
    if hint is int or type(members[0]) is int:
        return _same, (_same if hint is int else value_of)
    known = descriptor.enum_type
    for member in members:
        if member not in known.values_by_name:
            raise FlowError(
                f"{qualname}: enum {known.full_name} has no {member!r}; it has {', '.join(known.values_by_name)}"
            )
    names = {value.number: value.name for value in known.values}
    return lambda number: names.get(number, number), lambda member: known.values_by_name[value_of(member)].number


def _types_of(descriptor: Any) -> tuple[type, ...]:
    """The types that a single plain field fits."""
    kind = descriptor.cpp_type
    if kind == descriptor.CPPTYPE_STRING:
        return (bytes,) if descriptor.type == descriptor.TYPE_BYTES else (str,)
    if kind in (descriptor.CPPTYPE_DOUBLE, descriptor.CPPTYPE_FLOAT):
        return (float,)
    return (bool,) if kind == descriptor.CPPTYPE_BOOL else (int,)


def _misfit(qualname: str, hint: Any, descriptor: Any) -> FlowError:
    from lowtide.flow.schema.schema import said

    return FlowError(f"{qualname}: {said(hint)} does not fit field {descriptor.full_name} of the message")


def _moment(timestamp: Any) -> datetime:
    try:
        return _ORIGIN + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // _MICROSECOND_NS)
    except OverflowError:
        from lowtide.flow.schema.wire import Misread

        raise Misread(f"{timestamp.seconds} s since 1970 is beyond what a datetime can hold") from None


def _since(moment: datetime) -> dict[str, int]:
    since = moment - _ORIGIN
    return {"seconds": since.days * 86_400 + since.seconds, "nanos": since.microseconds * _MICROSECOND_NS}


def _same(value: Any) -> Any:
    return value


def _unmarked(hint: Any) -> Any:
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def bare_type(hint: Any) -> Any:
    """A type without markers and `| None`; of a time as an integer, int."""
    from lowtide.flow.schema.markers import Epoch
    from lowtide.flow.schema.marks import bare_of

    if any(isinstance(mark, Epoch) for mark in getattr(hint, "__metadata__", ())):
        return int
    bare = bare_of(_unmarked(hint))
    return bare if bare is hint else bare_type(bare)


def _collect(file: Any, files: dict[str, bytes]) -> None:
    """A file's descriptor after those that it needs."""
    for needed in file.dependencies:
        _collect(needed, files)
    files.setdefault(file.name, file.serialized_pb)


@cache
def _message(files: tuple[bytes, ...], name: str) -> Any:
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(FileDescriptorProto.FromString(file))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _again(record: Any, files: tuple[bytes, ...], name: str) -> ProtobufFormat[Any]:
    return ProtobufFormat(record, _message(files, name))
