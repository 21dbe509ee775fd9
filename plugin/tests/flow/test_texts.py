"""Times are cut down to microseconds wherever they are read, and a Decimal is a number as JSON or SQL write it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import rows_of_values

import lowtide as lt
from lowtide.flow.formats.formats import _reading_of
from lowtide.flow.schema.raw_record import Raw
from lowtide.flow.schema.wire import has_times

DIGITS = "[0-9]{1,9}"


@dataclass(frozen=True)
class Inner:
    at: datetime
    until: time | None = None


@dataclass(frozen=True)
class Timed:
    text: str
    at: datetime
    until: Annotated[time, lt.Alias("till")] = time(12)
    others: tuple[datetime, ...] = ()
    named: dict[str, time | None] = field(default_factory=dict)
    inner: Inner | None = None
    inners: list[Inner] = field(default_factory=list)
    since: Annotated[datetime | None, lt.Epoch("ns")] = None
    amount: Annotated[Decimal, lt.Precision(9, 2)] = Decimal("0.00")


@dataclass(frozen=True)
class Plain:
    """A record that codecs make as it is, with defaults and a look of its own."""

    text: str
    at: datetime
    inners: list[Inner] = field(default_factory=list)
    until: time = time(12)

    def __post_init__(self) -> None:
        if self.text == "refused":
            raise ValueError("it is refused")


@dataclass(init=False)
class OwnInit:
    at: datetime
    number: int = 7

    def __init__(self, moment: datetime) -> None:
        self.at = moment


digits = st.from_regex(DIGITS, fullmatch=True)
clocks = st.builds(
    lambda at, fraction: at.strftime("%H:%M:%S") + (f".{fraction}" if fraction else ""),
    st.times(),
    st.just("") | digits,
)
zones = st.sampled_from(["Z", "z", "+00:00", "+05:30", "-11:00"])
moments = st.builds(
    lambda day, between, clock, zone: f"{day.isoformat()}{between}{clock}{zone}",
    st.dates(date(1, 1, 3), date(9999, 12, 30)),
    st.sampled_from("T t"),
    clocks,
    zones,
)
texts = st.text('abc"\\.: 0123456789', max_size=20) | moments | clocks
inners = st.fixed_dictionaries({"at": moments}, optional={"until": clocks | st.none()})


@st.composite
def messages(draw: st.DrawFn, record: type) -> bytes:
    shape: dict[str, Any] = {"others": st.lists(moments, max_size=2), "inner": inners | st.none()}
    shape |= {"named": st.dictionaries(texts, clocks | st.none(), max_size=2), "till": clocks, "until": clocks}
    shape |= {"inners": st.lists(inners, max_size=2), "amount": st.sampled_from(["1.25", 3, 0.5])}
    known = {"Timed": set(shape) - {"until"}, "Plain": {"until", "inners"}}[record.__name__]
    needed = {"text": texts | st.just("refused"), "at": moments}
    optional = {name: each for name, each in shape.items() if name in known}
    value = draw(st.fixed_dictionaries(needed, optional=optional))
    text = json.dumps(value)
    if draw(st.booleans()):  # A digit may be escaped, and a message may be broken.
        text = re.sub(r"(\.\d*)(\d)", lambda found: f"{found[1]}\\u003{found[2]}", text, count=1)
    return draw(st.sampled_from([text, text[:-1], text.replace("Z", "Q", 1)])).encode()


def cut(value: Any) -> Any:
    """The times of a message cut down in Python; what is longer than a time's text stays."""
    if isinstance(value, dict):
        return {name: each if name in ("text", "amount") else cut(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(cut, value))
    return re.sub(r"(\.\d{6})\d+", r"\1", value) if isinstance(value, str) else value


@pytest.mark.parametrize("record", [Timed, Plain])
@given(data=st.data())
def test_times_are_cut_down_whatever_the_batch(record: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(messages(record), min_size=1, max_size=4))
    found = lt.json(record).decode(rows_of_values(values))
    each = [lt.json(record).decode(rows_of_values([value])) for value in values]
    assert found.rows == [row for one in each for row in one.rows]
    assert found.failures == [(index, reason) for index, one in enumerate(each) for _, reason in one.failures]
    for value, one in zip(values, each, strict=True):
        try:
            exact = json.dumps(cut(json.loads(value))).encode()
        except ValueError:
            assert one.failures
            continue
        expected = _reading_of(record, fine=False).decode(rows_of_values([exact]))
        assert list(map(repr, one.rows)) == list(map(repr, expected.rows))


@given(data=st.data())
def test_both_ways_read_the_same_of_times_that_are_not_finer(data: st.DataObject) -> None:
    values = [
        json.dumps(cut(value)).encode() for value in [json.loads(json.dumps({"text": "a", "at": data.draw(moments)}))]
    ]
    plain, fine = (_reading_of(Plain, fine=way).decode(rows_of_values(values)) for way in (False, True))
    assert list(map(repr, plain.rows)) == list(map(repr, fine.rows))


@pytest.mark.parametrize("digits_more", range(5))
def test_the_last_moment_stays_the_last(digits_more: int) -> None:
    nines = "9" * (6 + digits_more)
    value = f'{{"text":"12:00:00.{nines}","at":"9999-12-31T23:59:59.{nines}Z","till":"23:59:59.{nines}"}}'.encode()
    (row,) = lt.json(Timed).decode(rows_of_values([value])).rows
    assert row == Timed(f"12:00:00.{nines}", datetime.max.replace(tzinfo=UTC), time.max)


def test_a_class_with_a_constructor_of_its_own_is_made_as_codecs_make_it() -> None:
    values = [b'{"at":"2026-01-01T00:00:00.%sZ"}' % each for each in (b"5", b"5000009")]
    rows = lt.json(OwnInit).decode(rows_of_values(values)).rows
    assert [(row.at.microsecond, row.number) for row in rows] == [(500_000, 7)] * 2


def test_only_records_with_times_are_looked_through() -> None:
    @dataclass(frozen=True)
    class Whole:
        number: int
        since: Annotated[datetime, lt.Epoch("us")]
        stood: Annotated[datetime, lt.Timestamp()]
        day: date

    assert [has_times(each) for each in (Whole, Raw, Timed, Plain, Inner)] == [False, False, True, True, True]


@given(st.integers(-(10**18), 10**18))
def test_nanoseconds_since_1970_are_cut_down(number: int) -> None:
    @dataclass(frozen=True)
    class Since:
        at: Annotated[datetime, lt.Epoch("ns")]

    (row,) = lt.json(Since).decode(rows_of_values([b'{"at":%d}' % number])).rows
    whole = number // 1_000
    assert row.at == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=whole)
    assert lt.json(Since).encode([row]) == [b'{"at":%d}' % (whole * 1_000)]


def test_a_time_whose_nanoseconds_have_more_than_64_bits_is_refused_before_it_is_written() -> None:
    @dataclass(frozen=True)
    class Since:
        at: Annotated[datetime | None, lt.Epoch("ns")] = None
        others: tuple[Annotated[datetime, lt.Epoch("ns")], ...] = ()

    far, near = datetime(2263, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
    writable = lt.json(Since).writable
    assert [writable.fault(each) for each in (Since(), Since(near), Since(others=(near,)))] == [None] * 3
    for each in (Since(far), Since(others=(near, far))):
        assert "have more than 64 bits before 1678 and after 2261" in (writable.fault(each) or "")


NUMBERS = ["1", "-1", "+1", "1.5", "01.5", "1.", ".5", "1e1", "1E+1", "-0", "00"]
NO_NUMBERS = [
    "1_0", " 1", "1 ",
    "1\n", "\u0661", "\uff11", "", ".", "+", "--1", "1e", "1.5.5", "0x1", "NaN", "Infinity", "1,5", "\u22121",
]  # fmt: skip


@dataclass(frozen=True)
class Entry:
    id: UUID
    amount: Annotated[Decimal | None, lt.Precision(9, 2)] = None
    amounts: dict[str, list[Annotated[Decimal, lt.Precision(9, 2)]]] = field(default_factory=dict)


def entry(**values: Any) -> bytes:
    return json.dumps({"id": str(UUID(int=7)), **values}).encode()


@pytest.mark.parametrize("text", NUMBERS)
def test_a_decimal_is_read_as_json_or_sql_write_it(text: str) -> None:
    values = [entry(amount=text), entry(amounts={"a": [text]})]
    rows = lt.json(Entry).decode(rows_of_values(values)).rows
    assert [str(rows[0].amount), str(rows[1].amounts["a"][0])] == [str(Decimal(text).quantize(Decimal("0.01")) + 0)] * 2


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_only_python_takes_for_a_decimal_is_refused(text: str) -> None:
    values = [entry(amount=text), entry(amounts={"a": [text]})]
    failures = lt.json(Entry).decode(rows_of_values(values)).failures
    assert [index for index, _ in failures] == [0, 1]
    assert [reason for _, reason in failures] == [
        f"{text!r} is not a decimal number, for Entry.amount",
        f"{text!r} is not a decimal number, for Entry.amounts",
    ]


@pytest.mark.parametrize("value", [True, [], {}, "x"])
def test_what_is_no_number_at_all_is_refused(value: Any) -> None:
    ((_, reason),) = lt.json(Entry).decode(rows_of_values([entry(amount=value)])).failures
    assert reason.endswith("for Entry.amount")


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-9_999_999, max_value=9_999_999, places=2))
def test_no_digit_of_a_number_is_lost(amount: Decimal) -> None:
    value = b'{"id":"%s","amount":%s}' % (str(UUID(int=7)).encode(), str(amount).encode())
    assert lt.json(Entry).decode(rows_of_values([value])).rows == [Entry(UUID(int=7), amount)]
