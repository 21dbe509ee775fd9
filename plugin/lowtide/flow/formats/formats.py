"""Formats: how the bytes of a message become a record and back.

A format is a frozen value in a flow; its codec is loaded on use. Records are dataclasses, see `flow/schema/schema.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from msgspec.json import Encoder

    from lowtide.flow.formats.reading import Decoded, FineReading, Reading
    from lowtide.flow.formats.writable import Writable
    from lowtide.flow.schema.columns import Columns, Messages
    from lowtide.flow.schema.raw_record import Raw

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Format(Protocol[T_co]):
    """Turns bytes into records of one type and back, a batch at a time; how batches are cut makes no difference."""

    @property
    def record(self) -> type[T_co]:
        """The dataclass of the records."""

    def decode(self, messages: Messages) -> Decoded[T_co]:
        """Make records of messages; what cannot be parsed or does not fit is reported, never dropped silently."""

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Make the messages' values, None for a tombstone; keys and headers are in the records (`columns_of`).

        It never fails for records that `writable` says fit.
        """

    @property
    def writable(self) -> Writable:
        """The records that it can write: the same object each time, with the same answers in every process."""


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Messages as they are."""

    @property
    def record(self) -> type[Raw]:
        """`Raw`."""
        from lowtide.flow.schema.raw_record import Raw

        return Raw

    def decode(self, messages: Messages) -> Decoded[Raw]:
        """Pair keys with values; never fails."""
        from lowtide.flow.formats.reading import Decoded

        return Decoded(list(map(self.record, messages.keys, messages.values)), [])

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Take the values."""
        return [row.value for row in rows]

    @property
    def writable(self) -> Writable:
        """All bytes."""
        from lowtide.flow.formats.writable import Writable

        return Writable("Raw")

    def __str__(self) -> str:
        return "raw bytes"


@dataclass(frozen=True, slots=True)
class JsonFormat(Generic[T]):
    """One JSON object per message, read and written as the dataclass `record`.

    Unknown fields are ignored, missing ones take their defaults; bytes are base64, times RFC 3339.
    """

    record: type[T]

    def decode(self, messages: Messages) -> Decoded[T]:
        """Parse the messages, in C as long as all can be parsed, and check that the records fit."""
        return _reading(self.record).decode(messages)  # type: ignore[arg-type]  # a class is hashable

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Write a batch with one call into C: JSON never holds a bare newline, so lines are messages."""
        encoder, columns = _writing(self.record)  # type: ignore[arg-type]  # a class is hashable
        if columns is not None:
            rows = columns.values(rows)
            if columns.takes_null:
                return [None if row is None else encoder.encode(row) for row in rows]
        if len(rows) <= 1:
            return [encoder.encode(row) for row in rows]
        return encoder.encode_lines(rows)[:-1].split(b"\n")  # type: ignore[return-value]  # list is invariant

    @property
    def writable(self) -> Writable:
        """The values that JSON can write."""
        from lowtide.flow.formats.json_writable import json_writable

        return json_writable(self.record)  # type: ignore[arg-type]  # a class is hashable

    def __str__(self) -> str:
        return "JSON"


@cache
def _reading(record: Any) -> Reading | FineReading:
    from lowtide.flow.formats.reading import FineReading
    from lowtide.flow.schema.wire import has_times

    reading = _reading_of(record, fine=False)
    if not has_times(record):
        return reading
    return FineReading(reading, _reading_of(record, fine=True))


def _reading_of(record: Any, *, fine: bool) -> Reading:
    from decimal import Decimal

    import msgspec

    from lowtide.flow.formats.reading import Reading
    from lowtide.flow.schema.columns import columns_of

    columns = columns_of(record, fine=fine)
    # Numbers stay text for the field's reader: a float would lose digits of a Decimal.
    parse = msgspec.json.Decoder(columns.value, float_hook=Decimal).decode
    return Reading(record, columns, parse, (msgspec.DecodeError,), "a null value is not JSON")


@cache
def _writing(record: Any) -> tuple[Encoder, Columns | None]:
    """Return the encoder, and the columns unless all of them are in the value as they are."""
    from msgspec.json import Encoder

    from lowtide.flow.schema.columns import columns_of

    columns = columns_of(record)
    return Encoder(), None if columns.plain else columns


def json(record: type[T]) -> JsonFormat[T]:
    """Messages are JSON objects with the fields of the dataclass `record`.

    Example:
        >>> flow.read("refunds", lt.kafka("refunds", lt.json(Order))).write("chosen", to_chosen)
        >>> flow.run_locally(refunds=[b'{"user": "ada", "amount": 5, "ignored": true}'])["chosen"]
        [Order(user='ada', amount=5)]
    """
    return JsonFormat(record)


def raw() -> RawFormat:
    """Messages are bytes; the record is `Raw(key, value)`.

    Example:
        >>> flow.read("bytes", lt.kafka("bytes", lt.raw())).write("copies", lt.kafka("copies", lt.raw()))
        >>> flow.run_locally(bytes=[lt.Raw(b"ada", b"5")])["copies"]
        [Raw(key=b'ada', value=b'5')]
    """
    return RawFormat()
