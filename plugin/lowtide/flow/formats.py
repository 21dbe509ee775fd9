"""Formats: how the bytes of a message become a record and back.

A format is a frozen value in a flow; its codec is loaded on use. Records are dataclasses, see `lowtide.flow.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from msgspec.json import Encoder

    from lowtide.flow.raw_record import Raw

Messages = Sequence["bytes | None"]
"""Keys or values of n messages, None where there is none."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """What became of a batch of `n` messages.

    Attributes:
        rows: The records, in order, without those that failed; all of them fit their type.
        failures: `(index in the batch, reason)` of those that failed, in order.
    """

    rows: list[T]
    failures: list[tuple[int, str]]


class Format(Protocol[T_co]):
    """Bytes to records of one type and back, a batch at a time; the same whatever the batch is cut into."""

    @property
    def record(self) -> type[T_co]:
        """The dataclass of the records."""

    def decode(self, keys: Messages, values: Messages) -> Decoded[Any]:
        """Make records of messages; what cannot be parsed, or does not fit, is named, never dropped in silence."""

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Make the messages' values; raises what the codec raises for a record that cannot be written."""


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Messages as they are."""

    @property
    def record(self) -> type[Raw]:
        """`Raw`."""
        from lowtide.flow.raw_record import Raw

        return Raw

    def decode(self, keys: Messages, values: Messages) -> Decoded[Raw]:
        """Pair keys with values; never fails."""
        return Decoded(list(map(self.record, keys, values)), [])

    def encode(self, rows: Sequence[Raw]) -> list[bytes | None]:
        """Take the values."""
        return [row.value for row in rows]

    def __str__(self) -> str:
        return "raw bytes"


@dataclass(frozen=True, slots=True)
class JsonFormat(Generic[T]):
    """One JSON object per message, read and written as the dataclass `record`.

    Unknown fields are ignored, missing ones take their defaults; bytes are base64, times RFC 3339.
    """

    record: type[T]

    def decode(self, keys: Messages, values: Messages) -> Decoded[T]:
        """Parse one message after the other, in C as long as all can be parsed, and see that the records fit."""
        decode, complete, fits = _reading(self.record)  # type: ignore[arg-type]  # a class is hashable
        try:
            rows = list(map(decode, values))
        except Exception:  # noqa: BLE001 - of a user's __post_init__ too; whose it is, is asked below
            return self._decode_each(values)
        if complete is not None:
            complete(rows)
        return Decoded(rows, []) if all(map(fits, rows)) else self._decode_each(values)

    def _decode_each(self, values: Messages) -> Decoded[T]:
        import msgspec

        decode, _, _ = _reading(self.record)  # type: ignore[arg-type]  # a class is hashable
        rows: list[T] = []
        failures: list[tuple[int, str]] = []
        for index, value in enumerate(values):
            if value is None:
                failures.append((index, "a null value is not JSON"))
                continue
            try:
                row = decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                failures.append((index, str(error)))
            except Exception as error:  # noqa: BLE001 - whatever a user's __post_init__ raises
                failures.append((index, f"{type(error).__name__}: {error}"))
            else:
                fault = self._fault(row)
                if fault is None:
                    rows.append(row)
                else:
                    failures.append((index, fault))
        return Decoded(rows, failures)

    def _fault(self, row: T) -> str | None:
        """Complete a record; what is wrong with it all the same: an int of more than 64 bits, a time without offset."""
        from lowtide.flow.schema import schema_of

        _, complete, _ = _reading(self.record)  # type: ignore[arg-type]  # a class is hashable
        if complete is not None:
            complete([row])
        fault = schema_of(self.record).fault(row)
        return None if fault is None else fault.what

    def encode(self, rows: Sequence[T]) -> list[bytes | None]:
        """Write a batch with one call into C: JSON never holds a bare newline, so lines are messages."""
        if len(rows) <= 1:
            return [_encoder().encode(row) for row in rows]
        return _encoder().encode_lines(rows)[:-1].split(b"\n")  # type: ignore[return-value]  # list is invariant

    def __str__(self) -> str:
        return "JSON"


@cache
def _reading(record: Any) -> tuple[Callable[[Any], Any], Callable[[list[Any]], None] | None, Callable[[Any], bool]]:
    """What decodes a message, what completes decoded records, if they need it, and whether one fits its type."""
    from msgspec.json import Decoder

    from lowtide.flow.defaults import completer_of
    from lowtide.flow.fields import fits_of

    return Decoder(record).decode, completer_of(record), fits_of(record)


@cache
def _encoder() -> Encoder:
    from msgspec.json import Encoder

    return Encoder()


def json(record: type[T]) -> JsonFormat[T]:
    """Messages are JSON objects with the fields of the dataclass `record`."""
    return JsonFormat(record)


def raw() -> RawFormat:
    """Messages are bytes; the record is `Raw(key, value)`."""
    return RawFormat()
