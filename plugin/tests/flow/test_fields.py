"""Requirements on a record's fields, and the output of an exchange: both as columns say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.flow.schema.fields import decoder_of, encode_rows, fits_of, keeps, kept, key_of
from lowtide.flow.schema.raw_record import Raw
from lowtide.flow.schema.schema import schema_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 1 << 40


class Shape(StrEnum):
    ROUND = "round"


class Weekday(IntEnum):
    MONDAY = 0


@dataclass(frozen=True)
class Inner:
    number: int
    text: str | None = None


@dataclass
class Loose:
    items: list[Inner]


@dataclass(frozen=True)
class Every:
    text: str
    data: bytes
    number: int
    ratio: float
    flag: bool
    day: date
    moment: datetime
    colour: Colour
    level: Level
    shape: Shape
    weekday: Weekday
    word: Literal["on", "off"]
    count: Literal[1, 2]
    maybe: int | None
    maybe_ratio: float | None
    maybe_moment: datetime | None
    maybe_inner: Inner | None
    maybe_colour: Colour | None
    inner: Inner
    loose: Loose
    numbers: list[int]
    pairs: tuple[Inner, ...]
    table: dict[str, list[float]]
    deep: dict[str, tuple[Inner | None, ...]] = field(default_factory=dict)


class Text(str):
    """A subclass: it would come back as a str."""

    __slots__ = ()


class Number(int):
    """A subclass: it would come back as an int."""


@dataclass(frozen=True)
class InnerToo(Inner):
    """A subclass: it would come back as an `Inner`."""


ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=9))])
moments = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=ZONES)
texts = st.text(st.characters(codec="utf-8"), max_size=4)
ints = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, 1, -(1 << 63), (1 << 63) - 1])
ratios = st.floats(allow_nan=False) | st.integers(-(1 << 53), 1 << 53)
inners = st.builds(Inner, ints, st.none() | texts)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "text": texts,
    "data": st.binary(max_size=4),
    "number": ints,
    "ratio": ratios,
    "flag": st.booleans(),
    "day": st.dates(),
    "moment": moments,
    "colour": st.sampled_from(Colour),
    "level": st.sampled_from(Level),
    "shape": st.sampled_from(Shape),
    "weekday": st.sampled_from(Weekday),
    "word": st.sampled_from(["on", "off"]),
    "count": st.sampled_from([1, 2]),
    "maybe": st.none() | ints,
    "maybe_ratio": st.none() | ratios,
    "maybe_moment": st.none() | moments,
    "maybe_inner": st.none() | inners,
    "maybe_colour": st.none() | st.sampled_from(Colour),
    "inner": inners,
    "loose": st.builds(Loose, st.lists(inners, max_size=2)),
    "numbers": st.lists(ints, max_size=2),
    "pairs": st.lists(inners, max_size=2).map(tuple),
    "table": st.dictionaries(texts, st.lists(ratios, max_size=2), max_size=2),
    "deep": st.dictionaries(texts, st.lists(st.none() | inners, max_size=2).map(tuple), max_size=2),
}
records = st.fixed_dictionaries(FIELDS).map(lambda values: Every(**values))

WRONG: list[Any] = [
    None, "", "on", "red", "round", "\ud800", "a\udcff", "é", Text("x"), Text("on"), b"", bytearray(b"x"), 0, 1, 2, 3,
    1 << 63, -(1 << 63) - 1, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, 1 << 100, Number(1), True, False, 0.0, 1.0, 1.5,
    math.nan, math.inf, -0.0, date(2026, 1, 1), date.min, date.max, datetime(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC),
    Colour.RED, Level.LOW, Shape.ROUND, Weekday.MONDAY, Inner(1), Inner(1, "\ud800"), Inner("1"), Inner(1 << 63),  # type: ignore[arg-type]
    InnerToo(1), Loose([]), Loose([Inner(True)]), Loose([None]), Loose((Inner(1),)),  # type: ignore[arg-type, list-item]
    [], (), {}, set(), [1], [True], [1 << 63], [None], ["x"], (1,), (Inner(1),), (Inner(1, 2),), (None,), [Inner(1)],  # type: ignore[arg-type]
    {"a": []}, {"a": ()}, {"a": [1, 2.5]}, {"a": [(1 << 53) + 1]}, {"a": [None]}, {"\ud800": []}, {1: []}, {None: []},
    {Text("a"): []}, {"a": None}, {"a": (None, Inner(1))}, {"a": (InnerToo(1),)}, {"a": [Inner(1)]}, object, object(),
]  # fmt: skip


GOOD = Every(
    "a", b"a", 1, 1.5, True, date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), Colour.RED, Level.LOW, Shape.ROUND,
    Weekday.MONDAY, "on", 1, None, None, None, None, None, Inner(1), Loose([]), [1], (), {}, {},
)  # fmt: skip


def changed(name: str, value: Any) -> Every:
    return Every(**{each: getattr(GOOD, each) for each in FIELDS} | {name: value})


@pytest.mark.parametrize("name", FIELDS)
def test_a_look_finds_what_columns_refuse_at_each_field(name: str) -> None:
    schema, fits = schema_of(Every), fits_of(Every)
    assert fits(GOOD)
    assert schema.fault(GOOD) is None
    said = {
        index: (fits(changed(name, value)), schema.fault(changed(name, value))) for index, value in enumerate(WRONG)
    }
    differing = [repr(WRONG[index]) for index, (fitting, fault) in said.items() if fitting != (fault is None)]
    assert differing == []
    assert {fitting for fitting, _ in said.values()} == {True, False}


@settings(deadline=None)
@given(records, st.dictionaries(st.sampled_from(sorted(FIELDS)), st.sampled_from(WRONG), max_size=3))
def test_a_record_fits_exactly_where_columns_take_it(record: Every, wrong: dict[str, Any]) -> None:
    given_ = Every(**{name: getattr(record, name) for name in FIELDS} | wrong)
    assert fits_of(Every)(given_) == (schema_of(Every).fault(given_) is None)
    assert fits_of(Every)(record)


@pytest.mark.parametrize("record", [None, 1, InnerToo(1), Loose([]), object()])
def test_a_record_of_another_type_does_not_fit(record: object) -> None:
    assert not fits_of(Inner)(record)
    assert schema_of(Inner).fault(record) is not None


def plain(value: Any) -> Any:
    """A value with its types, and times with their zones: what `==` does not tell apart."""
    if isinstance(value, (list, tuple)):
        return type(value), [plain(each) for each in value]
    if isinstance(value, dict):
        return dict, [(plain(key), plain(each)) for key, each in value.items()]
    if hasattr(value, "__dataclass_fields__"):
        return type(value), [plain(getattr(value, name)) for name in value.__dataclass_fields__]
    if isinstance(value, datetime):
        return datetime, value.utcoffset(), value
    return type(value), math.copysign(1, value) if value == 0.0 else 1, value


def through_columns(record: type, rows: list[Any]) -> list[Any]:
    schema = schema_of(record)
    return schema.rows(schema.columns(rows))


@settings(deadline=None)
@given(st.lists(records, min_size=1, max_size=3))
def test_what_comes_out_of_an_exchange_is_what_columns_would_give(rows: list[Every]) -> None:
    expected = plain(through_columns(Every, rows))
    payload = encode_rows(rows)
    assert plain(decoder_of(Every)(payload)) == expected
    assert plain(kept(Every, rows, payload)) == expected


@settings(deadline=None)
@given(st.lists(inners, min_size=1, max_size=3))
def test_records_that_no_exchange_changes_are_kept(rows: list[Inner]) -> None:
    assert kept(Inner, rows, encode_rows(rows)) is rows
    assert plain(rows) == plain(through_columns(Inner, rows)) == plain(decoder_of(Inner)(encode_rows(rows)))


@dataclass(frozen=True)
class Doubled:
    number: int

    def __post_init__(self) -> None:
        if self.number < 100:
            object.__setattr__(self, "number", 2 * self.number)


@dataclass(frozen=True)
class Holding:
    rows: tuple[Inner, ...]


@dataclass(frozen=True)
class Listing:
    rows: list[int]


@dataclass(frozen=True)
class Timed:
    at: datetime | None


@dataclass(frozen=True)
class Rated:
    rates: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Named:
    number: int
    day: date | None = None


@dataclass(frozen=True, slots=True)
class Slotted:
    number: int
    colour: Colour


def test_which_records_are_kept() -> None:
    assert [keeps(record) for record in (Inner, Holding, Raw, Named, Slotted)] == [True] * 5
    assert [keeps(record) for record in (Every, Loose, Doubled, Listing, Timed, Rated)] == [False] * 6


@pytest.mark.parametrize(
    ("record", "rows"),
    [
        (Doubled, [Doubled(1), Doubled(70)]),
        (Holding, [Holding((Inner(1), Inner(2, "é")))]),
        (Raw, [Raw(None, b"\xff"), Raw(b"", None)]),
        (Named, [Named(number=1, day=date(1, 1, 1)), Named(number=2)]),
        (Slotted, [Slotted(1, Colour.BLUE)]),
        (Rated, [Rated((1, 2.5, -0.0, math.inf))]),
        (Timed, [Timed(datetime(1, 1, 2, tzinfo=UTC)), Timed(datetime(9999, 12, 30, 1, 2, 3, 4, tzinfo=UTC))]),
        (Inner, []),
    ],
)
def test_records_of_every_make_come_out_as_columns_would_give_them(record: type, rows: list[Any]) -> None:
    expected = plain(through_columns(record, rows))
    assert plain(decoder_of(record)(encode_rows(rows))) == expected
    assert plain(kept(record, rows, encode_rows(rows))) == expected


def test_what_is_no_number_stays_none() -> None:
    (row,) = decoder_of(Rated)(encode_rows([Rated((math.nan,))]))
    assert math.isnan(row.rates[0])


def test_a_key_is_a_columns_value_or_a_tuple_of_several() -> None:
    assert key_of(("number",))(Inner(5)) == 5
    assert key_of(("text", "number"))(Inner(5, "a")) == ("a", 5)
