"""Fields of all types, defaults of all kinds, helpers that are compared by identity or go by name: reads "readings"."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum, IntEnum
from functools import cache, cached_property
from typing import Literal, NewType, Optional

from lowtide import Flow, json, kafka, raw

NOTHING = object()
"""Stands for nothing, so it must be one and the same to all functions."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True)
class Place:
    city: str = "here"
    colours: tuple[Colour, ...] = (Colour.RED,)


@dataclass(frozen=True)
class Named:
    name: str
    unit: str = field(default="m", kw_only=True)


@dataclass(frozen=True, slots=True)
class Reading(Named):
    at: datetime
    colours: Optional[list[Colour]] = None  # noqa: UP045 - as many write it
    place: Place = field(default_factory=Place)
    sizes: list[Size] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"none": 0})
    before: list["Place"] = field(default_factory=lambda: [Place("there")])  # noqa: UP037
    day: date = date(2026, 1, 1)
    since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    kind: Literal["a", "b"] = "a"
    data: bytes = b"\x00"
    level: float = 1.5
    good: bool | None = True


@dataclass(frozen=True)
class Level:
    seen: int = 0
    last: Reading | None = None
    colour: Colour = Colour.BLUE
    places: list[Place] = field(default_factory=lambda: [Place()])


@dataclass(frozen=True)
class Told:
    name: str
    said: str
    level: Level
    reading: Reading


Words = NewType("Words", str)


@cache
def how_often(word: str, times: int) -> Words:
    """Calls itself, so that its cache is in itself."""
    return Words(word + how_often(word, times - 1)) if times else Words("")


class Scale:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    @cached_property
    def large(self) -> int:
        return sum(size is Size.LARGE for size in self.reading.sizes)


def first_colour(reading: Reading) -> object:
    return reading.colours[0] if reading.colours else NOTHING


def brighter(reading: Reading) -> Reading:
    """Refuses some, which become dead letters."""
    if reading.level < 0:
        raise ValueError(f"{reading.level} {reading.unit} is below the ground")
    return replace(reading, at=reading.at + timedelta(hours=1), unit=reading.unit * 2)


def raised(level: Level, reading: Reading) -> tuple[Level, Told]:
    colour = first_colour(reading)
    match colour:
        case Colour.RED:
            said = "red"
        case Colour.BLUE:
            said = "blue"
        case _:
            said = "nothing" if colour is NOTHING else f"{colour!r}, which is nobody's"
    said += how_often(" large", Scale(reading).large)
    said += how_often(" again", int(level.last is not None and level.last.place == reading.place))
    said += f" {len(fields(reading))}"
    newest = Colour.RED if colour is Colour.RED else level.colour
    after = Level(level.seen + 1, reading, newest, [*level.places[-2:], reading.place])
    return after, Told(reading.name, said, after, reading)


flow = Flow("typed", dead_letters=kafka("unreadable", raw()))
(
    flow.read("readings", kafka("readings", json(Reading)))
    .map(brighter)
    .key_by("name")
    .scan("level", raised, Level())
    .write("levels", kafka("levels", json(Told), key="name"))
)

READINGS = [
    b'{"name":"a","at":"2026-01-02T03:04:05Z"}',
    b'{"name":"b","at":"2026-01-02T03:04:05.000001+02:00","colours":["red","blue"],"sizes":[2,1,2],"level":2}',
    b'{"name":"a","at":"2026-01-02T03:04:06Z","colours":null,"place":{"city":"there"},"good":null,"unit":"km"}',
    b'{"name":"a","at":"2026-01-02T03:04:07Z","colours":["blue"],"place":{"city":"there","colours":[]},"kind":"b"}',
    b'{"name":"a","at":"2026-01-02T03:04:07Z","colours":["green"]}',
    b'{"name":"a","at":"2026-01-02T03:04:07Z","kind":"c"}',
    b'{"name":"b","at":"2026-01-02T03:04:07"}',
    b'{"name":"b","at":"2026-01-02T03:04:08Z","level":-1}',
    b'{"name":"b","at":"2026-01-02T03:04:09Z","since":"2025-01-01T00:00:00-05:00","data":"AAEC","before":[],"counts":{}}',
    b'{"name":"b","at":"2026-01-02T03:04:09Z","day":"2026-02-03","good":false,"sizes":[],"unit":""}',
]
"""The fifth to the eighth are refused: no such colour, no such kind, a time without a zone, a level below 0."""
