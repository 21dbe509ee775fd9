"""Markers: what `typing.Annotated` says of a field that does not stand in a message's value as it is here."""

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
    """The field's name in the value, where it is not its name here."""

    name: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """A `datetime` that stands in the value as an integer: seconds, milli-, micro- or nanoseconds since 1970.

    What is written is cut down to the unit, and what is read to microseconds.
    """

    unit: Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Precision:
    """How many digits a `Decimal` has: `digits` in all, at most 38, and exactly `scale` of them after the point."""

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
    """Whether the message's value is null: the fields that would stand in it then take their defaults."""


Marker = Alias | Epoch | Key | Header | Timestamp | Topic | Partition | Offset | Tombstone

MARKERS = (Alias, Epoch, Key, Header, Timestamp, Topic, Partition, Offset, Tombstone)
