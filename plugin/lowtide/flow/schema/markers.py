"""Markers for `typing.Annotated`, for a field that is not in a message's value, or is there in another form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Alias:
    """The field's name in the value, if it differs from the name here.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     sensor: Annotated[str, lt.Alias("sensor-id")]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[b'{"value": 7, "sensor-id": "north"}'])["copies"]
        [Reading(value=7, sensor='north')]
    """

    name: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """A `datetime` that the value holds as an integer: seconds, milli-, micro- or nanoseconds since 1970.

    Writing cuts it to the unit, reading to microseconds.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     at: Annotated[datetime, lt.Epoch("s")]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[b'{"value": 7, "at": 1}'])["copies"]
        [Reading(value=7, at=datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc))]
    """

    unit: Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Precision:
    """The digits of a `Decimal`: `digits` in all, at most 38, and exactly `scale` of them after the point.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     price: Annotated[Decimal, lt.Precision(10, 2)]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[b'{"value": 7, "price": 9.5}'])["copies"]
        [Reading(value=7, price=Decimal('9.50'))]
    """

    digits: int
    scale: int


@dataclass(frozen=True, slots=True)
class Key:
    """The message's key: `bytes`, `str` (UTF-8) or `int` (decimal digits), or any of these `| None`.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     sensor: Annotated[str, lt.Key()]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[lt.Message(b"north", b'{"value": 7}')])["copies"]
        [Reading(value=7, sensor='north')]
    """


@dataclass(frozen=True, slots=True)
class Header:
    """The last of the message's headers with this name: `str` or `bytes`, or `| None`; None is written as no header.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     origin: Annotated[str | None, lt.Header("origin")]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[lt.Message(value=b'{"value": 7}', headers=[("origin", b"north")])])["copies"]
        [Reading(value=7, origin='north')]
    """

    name: str


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The log's timestamp of the message that was read; not written, as a message's timestamp is its tick.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     at: Annotated[datetime, lt.Timestamp()]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[lt.Message(value=b'{"value": 7}', timestamp=noon)])["copies"]
        [Reading(value=7, at=datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.timezone.utc))]
    """


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic that the message was read from; not written.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     topic: Annotated[str, lt.Topic()]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[lt.Message(value=b'{"value": 7}')])["copies"]
        [Reading(value=7, topic='readings')]
    """


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition that the message was read from; not written.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     partition: Annotated[int, lt.Partition()]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[lt.Message(value=b'{"value": 7}')])["copies"]
        [Reading(value=7, partition=0)]
    """


@dataclass(frozen=True, slots=True)
class Offset:
    """The offset that the message was read at; not written.

    Example:
        >>> @dataclass(frozen=True)
        ... class Reading:
        ...     value: int
        ...     offset: Annotated[int, lt.Offset()]
        >>> readings = flow.read("readings", lt.kafka("readings", lt.json(Reading)))
        >>> readings.write("copies", lt.kafka("copies", lt.json(Reading)))
        >>> flow.run_locally(readings=[lt.Message(value=b'{"value": 7}')])["copies"]
        [Reading(value=7, offset=0)]
    """


@dataclass(frozen=True, slots=True)
class Tombstone:
    """True if the message's value is null: the fields that it would hold then take their defaults.

    Example:
        >>> @dataclass(frozen=True)
        ... class Method:
        ...     user: Annotated[str, lt.Key()]
        ...     deleted: Annotated[bool, lt.Tombstone()]
        ...     method: str = ""
        >>> methods = flow.read("methods", lt.kafka("methods", lt.json(Method)))
        >>> methods.write("copies", lt.kafka("copies", lt.json(Method)))
        >>> flow.run_locally(methods=[lt.Message(b"ada", None)])["copies"]
        [Method(user='ada', deleted=True, method='')]
    """


Marker = Alias | Epoch | Key | Header | Timestamp | Topic | Partition | Offset | Tombstone

MARKERS = (Alias, Epoch, Key, Header, Timestamp, Topic, Partition, Offset, Tombstone)
