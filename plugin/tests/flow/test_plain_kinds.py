"""Exact decimals, times of day and UUIDs: in columns, between workers and in messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, time
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import rows_of_values

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.schema.fields import decoder_of, encode_rows, fits_of, saves_of
from lowtide.flow.schema.schema import SchemaRefused, WrongType, kind_of, schema_of
from lowtide.local.samples import samples_of

Money = Annotated[Decimal, lt.Precision(18, 2)]


@dataclass(frozen=True)
class Entry:
    id: UUID
    amount: Money
    at: time = time(0)
    fee: Annotated[Decimal | None, lt.Precision(4, 3)] = None
    parts: tuple[Money, ...] = ()


def entry(amount: str, **more: Any) -> Entry:
    return Entry(UUID(int=7), Decimal(amount), **more)


cents = st.integers(-(10**18) + 1, 10**18 - 1).map(lambda number: Decimal(number).scaleb(-2))
times = st.times().map(lambda each: each.replace(fold=0))
entries = st.builds(Entry, st.uuids(), cents, times, st.none() | st.just(Decimal("1.234")), st.tuples(cents))


@given(st.lists(entries))
def test_columns_frames_and_messages_give_back_what_they_were_given(rows: list[Entry]) -> None:
    schema = schema_of(Entry)
    assert [field.type for field in schema.arrow][:3] == [pa.string(), pa.decimal128(18, 2), pa.time64("us")]
    columns = schema.columns(rows)
    messages = lt.json(Entry).decode(rows_of_values(lt.json(Entry).encode(rows)))
    assert messages.failures == []
    for again in (schema.rows(columns), decoder_of(Entry)(encode_rows(rows)), messages.rows):
        assert list(map(repr, again)) == list(map(repr, rows)), "with the very digits"
    assert all(kind.holds(column) for kind, column in zip(schema.kinds.values(), columns, strict=True))
    assert all(map(fits_of(Entry), rows))


def test_a_decimal_has_the_digits_of_its_field_whatever_a_message_wrote() -> None:
    value = b'{"id":"00000000-0000-0000-0000-000000000007","amount":%s}'
    values = [value % each for each in (b"1.5", b'"2"', b"-0", b"1e2")]
    found = lt.json(Entry).decode(rows_of_values(values)).rows
    assert [str(row.amount) for row in found] == ["1.50", "2.00", "0.00", "100.00"]
    wrong = [value % each for each in (b"1.505", b"1e17", b'"NaN"', b'"x"')]
    failures = lt.json(Entry).decode(rows_of_values(wrong)).failures
    assert [index for index, _ in failures] == [0, 1, 2, 3]
    kind = "a Decimal of 2 digits after the point and at most 18 in all"
    assert failures[0][1] == f"1.505 is not {kind}, for Entry.amount"


@pytest.mark.parametrize("amount", ["1.5", "1", "1.500", "NaN", "-0.00", "Infinity", "12345678901234567.00"])
def test_another_number_of_digits_is_refused_with_the_way_out(amount: str) -> None:
    assert not fits_of(Entry)(entry(amount))
    assert not saves_of(kind_of(Money, "state"))(Decimal(amount))
    says = r"Entry\.amount: expected Decimal of 2 digits .* with \.quantize\(Decimal\('0\.01'\)"
    with pytest.raises(WrongType, match=says):
        schema_of(Entry).columns([entry(amount)])


@pytest.mark.parametrize("at", [time(1, tzinfo=UTC), time(1, fold=1)])
def test_a_time_of_day_has_no_zone(at: time) -> None:
    assert not fits_of(Entry)(entry("1.00", at=at))
    with pytest.raises(WrongType, match="expected time without a time zone"):
        schema_of(Entry).columns([entry("1.00", at=at)])


def test_a_precision_that_is_none_is_refused() -> None:
    def refused(hint: Any, what: str) -> None:
        with pytest.raises(SchemaRefused, match=what):
            schema_of(dataclass(type("Odd", (), {"__annotations__": {"a": hint}})))

    refused(Decimal, "no column can hold Decimal")
    refused(Annotated[Decimal, lt.Precision(39, 2)], "use 0 <= scale <= digits <= 38")
    refused(Annotated[Decimal, lt.Precision(2, 3)], "0 <= scale <= digits")
    refused(Annotated[int, lt.Precision(2, 1)], r"Odd\.a: Precision marks Decimal, or that \| None, found int")


@dataclass(frozen=True)
class Unfitting:
    amount: Annotated[Decimal, lt.Precision(18, 2)] = Decimal(0)


@dataclass(frozen=True)
class Fitting:
    amount: Annotated[Decimal | None, lt.Precision(18, 2)] = Decimal("0.00")
    none: Annotated[Decimal | None, lt.Precision(18, 2)] = None


def test_a_default_of_other_digits_is_refused_with_the_dataclass() -> None:
    with pytest.raises(SchemaRefused, match=r"Unfitting.amount: its default is Decimal\('0'\), .*quantize"):
        schema_of(Unfitting)
    assert schema_of(Fitting).fault(Fitting()) is None


@dataclass(frozen=True)
class Balance:
    id: UUID
    amount: Money


def add(total: Money, entry: Entry) -> tuple[Money, Balance]:
    return total + entry.amount, Balance(entry.id, total + entry.amount)


def test_a_flow_keys_by_a_uuid_and_keeps_a_decimal() -> None:
    flow = lt.Flow("balances")
    entries = flow.read("entries", lt.kafka("entries", lt.json(Entry)))
    balances = entries.key_by("id").scan("balance", add, Decimal("0.00"))
    balances.write("balances", lt.kafka("balances", lt.json(Balance), key="id"))
    out = flow.run_locally(entries=[entry("1.50"), entry("2.25")])["balances"]
    assert out == [Balance(UUID(int=7), Decimal("1.50")), Balance(UUID(int=7), Decimal("3.75"))]
    assert len(samples_of(Entry)) > 10
    other = lt.Flow("by-amount")
    read = other.read("entries", lt.kafka("entries", lt.json(Entry)))
    read.key_by("amount").write("out", lt.kafka("out", lt.json(Entry)))
    with pytest.raises(FlowError, match="cannot be a key"):
        other.run_locally()
