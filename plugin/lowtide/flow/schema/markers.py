"""Markers for `typing.Annotated`, for a field that is not in a message's value, or is there in another form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "MARKERS",
    "Alias",
    "Epoch",
    "Header",
    "Key",
    "Marker",
    "Offset",
    "Partition",
    "Precision",
    "Timestamp",
    "Tombstone",
    "Topic",
]


@dataclass(frozen=True, slots=True)
class Alias:
    """The field's name in the value, if it differs from the name here."""

    name: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """A `datetime` that the value holds as an integer: seconds, milli-, micro- or nanoseconds since 1970.

    Writing cuts it to the unit, reading to microseconds.
    """

    unit: Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Precision:
    """The digits of a `Decimal`: `digits` in all, at most 38, and exactly `scale` of them after the point."""

    digits: int
    scale: int


@dataclass(frozen=True, slots=True)
class Key:
    """The message's key: `bytes`, `str` (UTF-8) or `int` (decimal digits), or any of these `| None`."""


@dataclass(frozen=True, slots=True)
class Header:
    """The last of the message's headers with this name: `str` or `bytes`, or `| None`; None is written as no header."""

    name: str


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The log's timestamp of the message that was read; not written, as a message's timestamp is its tick."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic that the message was read from; not written."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition that the message was read from; not written."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The offset that the message was read at; not written."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """True if the message's value is null: the fields that it would hold then take their defaults."""


Marker = Alias | Epoch | Key | Header | Timestamp | Topic | Partition | Offset | Tombstone

MARKERS = (Alias, Epoch, Key, Header, Timestamp, Topic, Partition, Offset, Tombstone)
