"""Dataclasses become columns and come back equal; what does not fit its type is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, Optional

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.flow.schema.schema import SchemaRefused, WrongType, schema_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: float


@dataclass(frozen=True)
class Flat:
    user: str
    at: int
    amount: float


@dataclass(frozen=True)
class Line:
    name: str
    points: list[Point] = field(default_factory=list)
    note: Optional[str] = None  # noqa: UP045 - both spellings must work


@dataclass(kw_only=True)
class Everything:
    text: str
    number: int
    real: float
    flag: bool
    data: bytes
    day: date
    moment: datetime
    colour: Colour
    level: Level
    word: Literal["a", "b"]
    point: Point
    maybe_point: Point | None
    maybe_number: int | None
    maybe_flag: bool | None
    maybe_moment: datetime | None
    maybe_real: float | None
    maybe_colour: Colour | None
    lines: list[Line]
    maybe_list: list[int | None] | None
    numbers: tuple[int, ...]
    counts: dict[str, int]
    nested: dict[str, list[dict[str, Point | None]]]
    maybe_counts: dict[str, str] | None


texts = st.text(max_size=5)
ints = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False)
zones = st.sampled_from([UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-7, minutes=-30))])
moments = st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=zones)
points = st.builds(Point, ints, floats)
lines = st.builds(Line, texts, st.lists(points, max_size=3), st.none() | texts)


@st.composite
def everything(draw: st.DrawFn) -> Everything:
    return Everything(
        text=draw(texts),
        number=draw(ints),
        real=draw(floats),
        flag=draw(st.booleans()),
        data=draw(st.binary(max_size=5)),
        day=draw(st.dates()),
        moment=draw(moments),
        colour=draw(st.sampled_from(Colour)),
        level=draw(st.sampled_from(Level)),
        word=draw(st.sampled_from(["a", "b"])),
        point=draw(points),
        maybe_point=draw(st.none() | points),
        maybe_number=draw(st.none() | ints),
        maybe_flag=draw(st.none() | st.booleans()),
        maybe_moment=draw(st.none() | moments),
        maybe_real=draw(st.none() | floats),
        maybe_colour=draw(st.none() | st.sampled_from(Colour)),
        lines=draw(st.lists(lines, max_size=3)),
        maybe_list=draw(st.none() | st.lists(st.none() | ints, max_size=3)),
        numbers=tuple(draw(st.lists(ints, max_size=3))),
        counts=draw(st.dictionaries(texts, ints, max_size=3)),
        nested=draw(
            st.dictionaries(
                texts, st.lists(st.dictionaries(texts, st.none() | points, max_size=2), max_size=2), max_size=2
            )
        ),
        maybe_counts=draw(st.none() | st.dictionaries(texts, texts, max_size=2)),
    )


@settings(deadline=None)
@given(st.lists(everything(), max_size=6), st.data())
def test_what_comes_out_equals_what_went_in(rows: list[Everything], data: st.DataObject) -> None:
    schema = schema_of(Everything)
    table = pa.RecordBatch.from_arrays(schema.columns(rows), schema=schema.arrow)
    table.validate(full=True)
    assert schema.rows(table.columns) == rows
    assert [list(row.counts) for row in schema.rows(table.columns)] == [list(row.counts) for row in rows]

    # The same after a network, for a slice, and for a choice of records in any order.
    with pa.BufferOutputStream() as stream:
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_batch(table)
        received = pa.ipc.open_stream(stream.getvalue()).read_next_batch()
    assert schema.rows(received.columns) == rows
    start = data.draw(st.integers(0, len(rows)))
    assert schema.rows(received.slice(start).columns) == rows[start:]
    indices = data.draw(st.lists(st.integers(0, max(0, len(rows) - 1)), max_size=5 if rows else 0))
    taken = received.take(pa.array(indices, pa.int64()))
    assert schema.rows(taken.columns) == [rows[index] for index in indices]


@settings(deadline=None)
@given(st.lists(everything(), max_size=4))
def test_columns_made_by_us_hold_their_kinds(rows: list[Everything]) -> None:
    schema = schema_of(Everything)
    for kind, column in zip(schema.kinds.values(), schema.columns(rows), strict=True):
        assert kind.holds(column)
        assert column.type == kind.arrow


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("at", 1.5, "Flat.at: expected int, found float 1.5"),
        ("at", True, "Flat.at: expected int, found bool True"),
        ("at", "1", "Flat.at: expected int, found str '1'"),
        ("at", None, "Flat.at: expected int, found None"),
        ("at", 2**63, "Flat.at: expected int that int64 can hold, found int 9223372036854775808"),
        ("at", np.int64(1), "Flat.at: expected int, found int64 np.int64(1)"),
        ("user", b"a", "Flat.user: expected str, found bytes b'a'"),
        ("user", "\ud800", r"Flat.user: expected str that string can hold, found str '\ud800'"),
        ("amount", True, "Flat.amount: expected float, found bool True"),
        ("amount", 2**53 + 1, "Flat.amount: expected float, found int 9007199254740993"),
        ("amount", Decimal(1), "Flat.amount: expected float, found Decimal Decimal('1')"),
    ],
)
def test_a_wrong_value_is_named_with_record_field_value_and_expectation(name: str, value: Any, message: str) -> None:
    good: dict[str, Any] = {"user": "a", "at": 1, "amount": 1.0}
    rows = [Flat(**good), Flat(**good), Flat(**{**good, name: value}), Flat(**good)]
    with pytest.raises(WrongType) as caught:
        schema_of(Flat).columns(rows)
    assert caught.value.what == message
    assert caught.value.index == 2


def test_a_wrong_value_deep_inside_is_named_by_its_path() -> None:
    rows = [Line("a", [Point(1, 1.0)]), Line("b", [Point(1, 1.0), Point("2", 1.0)])]  # type: ignore[arg-type]
    with pytest.raises(WrongType, match=r"Line.points\[\].x: expected int, found str '2'") as caught:
        schema_of(Line).columns(rows)
    assert caught.value.index == 1


def test_a_record_of_another_class_is_a_wrong_type() -> None:
    with pytest.raises(WrongType, match="expected Flat, found Point"):
        schema_of(Flat).columns([Flat("a", 1, 1.0), Point(1, 1.0)])


def test_none_is_no_record() -> None:
    with pytest.raises(WrongType, match="Flat: expected Flat, found None"):
        schema_of(Flat).columns([None])


def test_a_time_needs_a_zone_and_comes_back_as_the_same_instant() -> None:
    @dataclass
    class Event:
        at: datetime

    schema = schema_of(Event)
    with pytest.raises(WrongType, match="expected datetime with a time zone"):
        schema.columns([Event(datetime(2024, 1, 1))])
    there = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    back = schema.rows(schema.columns([Event(there)]))[0].at
    assert (back, back.tzinfo) == (there, UTC)


def test_an_int_becomes_a_float_where_a_float_is_declared() -> None:
    schema = schema_of(Flat)
    amount = schema.rows(schema.columns([Flat("a", 1, 3)]))[0].amount
    assert (amount, type(amount)) == (3.0, float)


def _with_field(kind: Any) -> type:
    return dataclass(type("Strange", (), {"__annotations__": {"odd": kind}}))


@pytest.mark.parametrize(
    "kind",
    [set[str], frozenset[int], Decimal, Any, object, int | str, dict[int, str], tuple[int, str], list, complex, dict],
    ids=str,
)
def test_an_unsupported_field_is_refused_with_class_and_field(kind: Any) -> None:
    with pytest.raises(SchemaRefused, match=r"Strange\.odd"):
        schema_of(_with_field(kind))


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Hidden:
    _front: int


@dataclass
class Computed:
    seen: int
    squared: int = field(init=False)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Tree, "Tree contains itself"),
        (Hidden, "Hidden._front: names that start with an underscore"),
        (Computed, "Computed.squared: not an argument of the constructor"),
        (str, "a record must be a dataclass, found str"),
        (list[int], r"a record must be a dataclass, found list\[int\]"),
        (dataclass(type("Empty", (), {})), "Empty has no fields"),
    ],
)
def test_a_class_that_no_record_can_be_of_is_refused(record: Any, message: str) -> None:
    with pytest.raises(SchemaRefused, match=message):
        schema_of(record)
