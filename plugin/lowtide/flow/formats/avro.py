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
    """What knows schemas by their numbers; it can be pickled, compared and hashed."""

    def schema(self, number: int) -> str:
        """The schema as JSON (errors: SchemaUnknown; ServiceUnavailable where the registry does not answer)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """What a start has found out for a format.

    Attributes:
        registry: Where writers' schemas are.
        number: Of the schema that is written; None where the format is read.
    """

    registry: Registry
    number: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AvroFormat(Generic[T]):
    """One framed Avro record per message, read and written as the dataclass `record`.

    A message is read by its writer's schema, and its fields go by name: what the dataclass has not is ignored, what the
    message has not takes its default.
    """

    record: type[T]
    registry: str = "default"
    subject: str | None = None
    schema: str | None = None
    bound: Bound | None = None

    def decode(self, messages: Messages) -> Decoded[T]:
        """Parse one message after the other, and see that the records fit."""
        if self.bound is None:
            raise FlowError(
                "an Avro message's schema stands in a registry, which only a job asks",
                way_out="give run_locally records, not the bytes of messages",
            )
        record: Any = self.record
        registry: Any = self.bound.registry
        return _reading(record, registry).decode(messages)

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Write one record after the other."""
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
        """The values that the written schema has room for."""
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
        subject: For `write` only: under which the schema is registered, `TOPIC-value` if nothing is said.
        schema: For `write` only: another schema, as JSON.
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
        pass  # Of what is read that is no matter; `writable` says it of what is written.
    except FlowError as error:
        raise type(error)(error.what, where=error.where or str(user_site()), way_out=error.way_out) from None
    except (SchemaParseException, UnknownType, ValueError) as error:
        raise FlowError(f"the schema is none: {error}", where=str(user_site()), way_out="correct schema=") from None
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
            raise Misread("it does not begin with a zero and the number of a schema, as a schema registry frames Avro")
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
        value: A record, or what stands in a message for it.
    """
    import msgspec
    from fastavro import schemaless_writer

    out = io.BytesIO()
    # Else a tuple in a union would be the name of a type and its value.
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
    """A schema of its JSON (errors: ValueError, and fastavro's of what is no schema)."""
    from fastavro import parse_schema

    return parse_schema(json.loads(text))


def _parsed_to_read(text: str) -> Any:
    """A writer's schema whose UUIDs are read as text, as fastavro takes for one what is none."""
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
    """A moment of its nanoseconds since 1970, cut down to microseconds."""
    return _ORIGIN + timedelta(microseconds=number // _MICROSECOND_NS)
