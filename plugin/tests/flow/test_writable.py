"""What a sink's format is given reads back equal, or is refused before: for records of random types, at their edges."""

from __future__ import annotations

import dataclasses
import math
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from itertools import count
from random import Random
from typing import Annotated, Any, Literal, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from programs import rows_of_values

import lowtide as lt
from lowtide.flow.avro import Bound
from lowtide.flow.fields import fits_of
from lowtide.flow.formats import Format
from lowtide.flow.marks import bare_of

SEEDS = range(100)
ROWS = 24
NUMBERS = count()


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"


class Size(Enum):
    SMALL = 1
    LARGE = 2**40


PLAIN: list[Any] = [
    str, bytes, int, float, bool, date, time, datetime, UUID, Annotated[Decimal, lt.Precision(6, 2)], Colour, Size,
    Literal["RED", "GREEN"], Literal[0, 7], Annotated[datetime, lt.Epoch("s")], Annotated[datetime, lt.Epoch("us")],
]  # fmt: skip

DUBLIN = ZoneInfo("Europe/Dublin")
"""Until 1916 at an offset of minutes and seconds."""
ZONES = [
    UTC,
    timezone(timedelta(hours=-7)),
    DUBLIN,
    timezone(timedelta(seconds=-1)),
    timezone(timedelta(seconds=86399)),
]
INTEGERS = [0, 1, -1, 7, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, 0.1, -1e9, 1e300, -1e300, 3.4028235677973366e38, 3.4028235e38, 5e-324, 3, 2**53]
TEXTS = ["", "a", "\x00", '\u20ac\n"', "x" * 300, "RED", "-type", "\U0001f600"]


def value_of(dice: Random, hint: Any, floats: list[float]) -> Any:
    """A value of a type, at its edges mostly."""
    marks: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    inner = get_args(hint)[0] if marks else hint
    bare, origin, arguments = bare_of(inner), get_origin(inner), get_args(inner)
    if bare is not inner:
        return None if dice.random() < 0.4 else value_of(dice, Annotated[bare, *marks] if marks else bare, floats)
    if origin in (list, tuple):
        values = [value_of(dice, arguments[0], floats) for _ in range(dice.choice([0, 1, 2, 3]))]
        return values if origin is list else tuple(values)
    if origin is dict:
        return {name: value_of(dice, arguments[1], floats) for name in dice.sample(TEXTS, dice.randrange(3))}
    if origin is Literal:
        return dice.choice(arguments)
    if dataclasses.is_dataclass(inner):
        made: Any = inner
        hints = {field.name: field.type for field in dataclasses.fields(made)}
        return made(**{name: value_of(dice, each, floats) for name, each in hints.items()})
    if isinstance(inner, type) and issubclass(inner, Enum):
        return dice.choice(list(inner))
    if inner is Decimal:
        return Decimal(dice.choice([0, 1, -1, 999_999, -999_999, 10])).scaleb(-marks[0].scale)
    if inner is datetime:
        first = datetime(1, 1, 2, 12, tzinfo=UTC)
        at = dice.choice([first, datetime(1850, 1, 1, 1, 2, 3, 999_999, UTC), datetime(9999, 12, 30, tzinfo=UTC)])
        return at.astimezone(dice.choice(ZONES))
    edges: dict[Any, list[Any]] = {
        str: TEXTS,
        bytes: [b"", b"\x00\xff", b"a" * 300],
        int: INTEGERS,
        float: floats,
        bool: [True, False],
        date: [date.min, date.max, date(1969, 12, 31)],
        time: [time.min, time.max, time(1, 2, 3, 4)],
        UUID: [UUID(int=0), UUID(int=2**128 - 1)],
    }
    return dice.choice(edges[inner])


def record_of(dice: Random, depth: int = 2) -> Any:
    """A dataclass of random fields."""
    fields = []
    for place in range(dice.randint(1, 4)):
        hint = hint_of(dice, depth)
        fields.append((f"f{place}", hint))
    return dataclasses.make_dataclass(f"Made{next(NUMBERS)}", fields, frozen=True)


def hint_of(dice: Random, depth: int) -> Any:
    if depth and dice.random() < 0.5:
        inner = hint_of(dice, depth - 1)
        made: list[Any] = [list[inner], tuple[inner, ...], dict[str, inner], record_of(dice, depth - 1)]  # type: ignore[valid-type]
        found: Any = dice.choice(made)
    else:
        found = dice.choice(PLAIN)
    if dice.random() < 0.3 and bare_of(found) is found and not hasattr(found, "__metadata__"):
        return found | None if not isinstance(found, str) else found
    return found


def same(hint: Any, was: Any, found: Any, rounded: bool) -> Any:
    """Whether a value is what was written; cut down where its marker says so, and perhaps rounded to 32 bits."""
    marks = getattr(hint, "__metadata__", ())
    inner = bare_of(get_args(hint)[0] if marks else hint)
    if was is None or found is None:
        return was is found
    origin, arguments = get_origin(inner), get_args(inner)
    if origin in (list, tuple):
        return len(was) == len(found) and all(
            same(arguments[0], *each, rounded) for each in zip(was, found, strict=True)
        )
    if origin is dict:
        return set(was) == set(found) and all(same(arguments[1], was[key], found[key], rounded) for key in was)
    if dataclasses.is_dataclass(inner):
        fields = dataclasses.fields(inner)
        return all(same(each.type, getattr(was, each.name), getattr(found, each.name), rounded) for each in fields)
    if marks and isinstance(marks[0], lt.Epoch):
        return timedelta(0) <= was - found < timedelta(microseconds={"s": 10**6, "us": 1}[marks[0].unit])
    if inner is float:
        was = struct.unpack("<f", struct.pack("<f", was))[0] if rounded and math.isfinite(was) else float(was)
        return repr(was) == repr(float(found))
    return was == found


def keeps_the_law(form: Format[Any], dice: Random, floats: list[float], *, rounded: bool = False) -> int:
    """Write random records, those that fit, and read them; how many did not fit."""
    assert not form.writable.never, form.writable.never
    record: Any = form.record
    refused = 0
    for _ in range(ROWS):
        row = value_of(dice, record, floats)
        assert fits_of(record)(row), f"no record to be tried: {row}"
        fault = form.writable.fault(row)
        if fault is not None:
            refused += 1
            assert form.writable.perhaps or "ahead of UTC" in fault, "what may not fit is noted"
            continue
        (value,) = form.encode([row])
        decoded = form.decode(rows_of_values([value]))
        assert not decoded.failures, (row, value, decoded.failures)
        assert same(record, row, decoded.rows[0], rounded), (row, value, decoded.rows[0])
    return refused


@dataclasses.dataclass(frozen=True)
class Registered:
    """A registry of one schema."""

    text: str

    def schema(self, number: int) -> str:
        return self.text


def bound(form: Any) -> Any:
    return dataclasses.replace(form, bound=Bound(Registered(form.text), 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_written_reads_back_equal_or_is_refused(seed: int) -> None:
    dice = Random(seed)
    record = record_of(dice)
    finite = [each for each in FLOATS if math.isfinite(each)]
    keeps_the_law(lt.json(record), dice, finite)
    assert keeps_the_law(bound(lt.avro(record)), dice, [*FLOATS, math.inf, math.nan]) == 0, "its schema is its own"
