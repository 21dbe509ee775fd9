"""Formats: how the bytes of a message become a record and back.

A format is a frozen value in a flow; its codec is loaded on use. Records are dataclasses, see `lowtide.schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from msgspec.json import Decoder, Encoder

    from lowtide.bytes_column import BytesColumn

_FEW_MESSAGES = 16
"""Up to here one call per message is quicker than looking whether one call for all would do."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """What became of a batch of `n` messages.

    Attributes:
        rows: The records, in order, without those that failed.
        failures: `(index in the batch, reason)` of those that failed, in order.
    """

    rows: list[T]
    failures: list[tuple[int, str]]


class Format(Protocol[T_co]):
    """Bytes to records of one type and back, a batch at a time; the same whatever the batch is cut into."""

    @property
    def record(self) -> type[T_co]:
        """The dataclass of the records."""

    def decode(self, keys: BytesColumn, values: BytesColumn) -> Decoded[Any]:
        """Make records of messages; what cannot be parsed is named, never dropped in silence."""

    def columns(self, keys: BytesColumn, values: BytesColumn) -> list[pa.Array] | None:
        """Give the records as columns, where that takes no object per record and never fails; else None."""

    def encode(self, rows: Sequence[Any]) -> list[bytes | None]:
        """Make the messages' values; raises what the codec raises for a record that cannot be written."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A message as it is."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Messages as they are."""

    @property
    def record(self) -> type[Raw]:
        """`Raw`."""
        return Raw

    def decode(self, keys: BytesColumn, values: BytesColumn) -> Decoded[Raw]:
        """Pair keys with values; never fails."""
        return Decoded(list(map(Raw, keys.to_list(), values.to_list())), [])

    def columns(self, keys: BytesColumn, values: BytesColumn) -> list[pa.Array] | None:
        """Share the bytes as they are."""
        return [keys.to_arrow(), values.to_arrow()]

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

    def decode(self, keys: BytesColumn, values: BytesColumn) -> Decoded[T]:
        """Parse a batch with one call into C if that cannot mislead, else one message after the other."""
        decoder: Decoder[T] = _decoder(self.record)  # type: ignore[arg-type]  # a class is hashable
        if len(values) > _FEW_MESSAGES and _are_objects(values):
            try:
                rows = decoder.decode_lines(b"\n".join(values.to_list()))  # type: ignore[arg-type]  # no nulls here
            except Exception:  # noqa: BLE001, S110 - a user's __post_init__; asked again below
                pass
            else:
                if len(rows) == len(values):
                    return Decoded(rows, [])
        return self._decode_each(decoder, values)

    def columns(self, keys: BytesColumn, values: BytesColumn) -> list[pa.Array] | None:
        """JSON has to be parsed first."""
        return None

    def _decode_each(self, decoder: Decoder[T], values: BytesColumn) -> Decoded[T]:
        import msgspec

        rows: list[T] = []
        failures: list[tuple[int, str]] = []
        for index, value in enumerate(values.to_list()):
            if value is None:
                failures.append((index, "a null value is not JSON"))
                continue
            try:
                rows.append(decoder.decode(value))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                failures.append((index, str(error)))
            except Exception as error:  # noqa: BLE001 - whatever a user's __post_init__ raises
                failures.append((index, f"{type(error).__name__}: {error}"))
        return Decoded(rows, failures)

    def encode(self, rows: Sequence[T]) -> list[bytes | None]:
        """Write a batch with one call into C: JSON never holds a bare newline, so lines are messages."""
        if not rows:
            return []
        return _encoder().encode_lines(rows)[:-1].split(b"\n")  # type: ignore[return-value]  # list is invariant

    def __str__(self) -> str:
        return "JSON"


def _are_objects(values: BytesColumn) -> bool:
    r"""Whether every value starts with `{` and ends with `}`, so that lines cannot run into each other.

    `decode_lines` takes a newline for any white space: `{"a":1,` and `"b":2}` would become one record, and `{}{}` two.
    Between two values of this kind stands `}\n{`, which is nowhere inside one JSON value; so every value holds at
    least one record, and n records out of n values means one each. O(n) in numpy.
    """
    import numpy as np

    if values.nulls is not None or len(values) == 0:
        return False
    starts, ends = values.offsets[:-1], values.offsets[1:]
    if (ends <= starts).any():
        return False
    data = np.frombuffer(values.data, np.uint8)
    return bool((data[starts] == ord("{")).all() and (data[ends - 1] == ord("}")).all())


@cache
def _decoder(record: Any) -> Decoder[Any]:
    from msgspec.json import Decoder

    return Decoder(record)


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
