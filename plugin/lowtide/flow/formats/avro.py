"""Avro messages as a schema registry frames them: a zero, the number of the writer's schema, the record."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from lowtide.errors import FlowError
from lowtide.flow.formats.avro_schema import NamesCollide, schema_text
from lowtide.flow.site import user_site

if TYPE_CHECKING:
    from lowtide.flow.formats.reading import Decoded, Reading
    from lowtide.flow.formats.writable import Writable
    from lowtide.flow.schema.columns import Messages

__all__ = ["AvroFormat", "Bound", "Registry", "SchemaUnknown", "avro", "parsed", "read", "schema_text", "written"]

T = TypeVar("T")

_MAGIC = 0
_HEAD_BYTES = 5
_MICROSECOND_NS = 1_000
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
BUILTIN = (bytes, date, datetime, time, Decimal, UUID)
"""Types that Avro has beside Python's plain ones."""


class SchemaUnknown(Exception):
    """The registry has no schema of this number."""


class Registry(Protocol):
    """Looks up schemas by their numbers; it can be pickled, compared and hashed."""

    def schema(self, number: int) -> str:
        """Return the schema as JSON (errors: SchemaUnknown; ServiceUnavailable if the registry does not answer)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """The registry and schema number that a start has found for a format.

    Attributes:
        registry: Where writers' schemas are.
        number: Of the schema that is written; None where the format is read.
    """

    registry: Registry
    number: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AvroFormat(Generic[T]):
    """One framed Avro record per message, read and written as the dataclass `record`.

    A message is read with its writer's schema, and fields are matched by name: fields that the dataclass lacks are
    ignored, fields that the message lacks take their defaults.
    """

    record: type[T]
    registry: str = "default"
    subject: str | None = None
    schema: str | None = None
    bound: Bound | None = None

    def decode(self, messages: Messages) -> Decoded[T]:
        """Parse the messages one by one and check that the records fit."""
        if self.bound is None:
            raise FlowError(
                "Avro messages need a schema registry, and run_locally does not ask one",
                way_out="give run_locally records, not the bytes of messages",
            )
        record: Any = self.record
        registry: Any = self.bound.registry
        return _reading(record, registry).decode(messages)

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Write the records one by one."""
        from lowtide.flow.schema.columns import columns_of

        assert self.bound is not None, "a start binds the formats of sinks"
        assert self.bound.number is not None, "a start registers the schemas of sinks"
        record: Any = self.record
        head, schema = _MAGIC.to_bytes() + self.bound.number.to_bytes(4), parsed(self.text)
        columns = columns_of(record)
        found: list[bytes | None] = []
        for value in rows if columns.plain else columns.values(rows):
            if value is None:
                found.append(None)
                continue
            found.append(head + written(schema, value))
        return found

    @property
    def writable(self) -> Writable:
        """The values that the written schema can hold."""
        from lowtide.flow.formats.avro_writable import avro_writable

        return avro_writable(self.record, self.schema)  # type: ignore[arg-type]  # a class is hashable

    @property
    def text(self) -> str:
        """The schema that is written, as JSON (errors: NamesCollide)."""
        record: Any = self.record
        return schema_text(record) if self.schema is None else self.schema

    def __str__(self) -> str:
        return f"Avro (registry {self.registry!r})"


def avro(
    record: type[T], *, registry: str = "default", subject: str | None = None, schema: str | None = None
) -> AvroFormat[T]:
    """Messages are Avro as a schema registry frames it; the schema that is written is made of the dataclass.

    Args:
        record: The dataclass.
        registry: Which of the configuration's registries: `[registry.NAME]`.
        subject: For `write` only: the subject under which the schema is registered, by default `TOPIC-value`.
        schema: For `write` only: another schema, as JSON.

    Example:
        >>> flow.read("refunds", lt.kafka("refunds", lt.avro(Order))).write("chosen", to_chosen)
        >>> flow.run_locally(refunds=[Order("ada", 5)])["chosen"]
        [Order(user='ada', amount=5)]
    """
    try:
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError:
        raise FlowError(
            "avro() needs the package fastavro", where=str(user_site()), way_out="pip install 'lowtide[avro]'"
        ) from None
    made = AvroFormat(record, registry, subject, schema)
    try:
        parsed(made.text)
    except NamesCollide:
        pass  # It does not matter for reading; `writable` reports it for writing.
    except FlowError as error:
        raise type(error)(error.what, where=error.where or str(user_site()), way_out=error.way_out) from None
    except (SchemaParseException, UnknownType, ValueError) as error:
        what = f"schema= is not an Avro schema: {error}"
        raise FlowError(what, where=str(user_site()), way_out="correct schema=") from None
    return made


@cache
def _reading(record: Any, registry: Any) -> Reading:
    import msgspec

    from lowtide.flow.formats.reading import Reading
    from lowtide.flow.schema.columns import columns_of
    from lowtide.flow.schema.wire import Misread

    columns = columns_of(record, fine=True)
    schemas: dict[int, Any] = {}

    def schema_of(data: bytes | None) -> Any:
        if data is None or len(data) < _HEAD_BYTES or data[0] != _MAGIC:
            raise Misread("it does not begin with a zero byte and a schema number, as Avro from a schema registry does")
        number = int.from_bytes(data[1:_HEAD_BYTES])
        known = schemas.get(number)
        if known is None:
            try:
                known = schemas[number] = _parsed_to_read(registry.schema(number))
            except SchemaUnknown as error:
                raise Misread(str(error)) from None
        return known

    def parse(data: bytes | None) -> Any:
        schema = schema_of(data)
        assert data is not None, "schema_of has refused it"
        try:
            found = read(schema, data, _HEAD_BYTES)
        except Exception as error:  # noqa: BLE001 - fastavro raises what it meets: EOFError, IndexError, ...
            raise Misread(f"it does not follow its schema: {type(error).__name__} {error}".rstrip()) from None
        return msgspec.convert(found, columns.value, builtin_types=(bytes,))

    return Reading(record, columns, parse, (msgspec.ValidationError,), "a null value is not Avro")


def written(schema: Any, value: Any) -> bytes:
    """A value as Avro, without the frame.

    Args:
        schema: As `parsed` gives it.
        value: A record, or its form in a message.
    """
    import msgspec
    from fastavro import schemaless_writer

    out = io.BytesIO()
    # Otherwise fastavro reads a tuple in a union as a type's name and a value.
    schemaless_writer(out, schema, msgspec.to_builtins(value, builtin_types=BUILTIN), disable_tuple_notation=True)
    return out.getvalue()


def read(schema: Any, data: bytes, start: int = 0) -> Any:
    """The inverse of `written`, of what begins somewhere in a message; raises whatever fastavro does."""
    from fastavro import schemaless_reader

    stream = io.BytesIO(data)
    stream.seek(start)
    return schemaless_reader(stream, schema, None)


@cache
def parsed(text: str) -> Any:
    """Parse a schema's JSON (errors: ValueError, and fastavro's own for what is not a schema)."""
    from fastavro import parse_schema

    return parse_schema(json.loads(text))


def _parsed_to_read(text: str) -> Any:
    """Parse a writer's schema so that UUIDs are read as text: fastavro accepts as a UUID what is not one."""
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.setdefault("long-timestamp-nanos", _of_nanos)
    return parsed(json.dumps(_without_uuids(json.loads(text))))


def _without_uuids(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(_without_uuids, schema))
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "uuid" and schema.get("type") == "string":
        return "string"
    return {name: _without_uuids(part) if name in _PARTS else part for name, part in schema.items()}


_PARTS = ("type", "fields", "items", "values")
"""The keys under which a schema holds others."""


def _of_nanos(number: int, *_: Any) -> datetime:
    """Make a datetime of nanoseconds since 1970, cut to microseconds."""
    return _ORIGIN + timedelta(microseconds=number // _MICROSECOND_NS)
