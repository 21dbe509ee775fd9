"""Columns that are not in the value: read from key, headers and place of a message, and written back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

import lowtide as lt
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.errors import FlowError
from lowtide.flow.formats.reading import Decoded
from lowtide.flow.plan.check import check_flow
from lowtide.flow.schema.columns import columns_of
from lowtide.flow.schema.headers import pack_headers, unpack_headers
from lowtide.flow.schema.schema import SchemaRefused

MOMENT = datetime(2026, 3, 1, 10, 0, 1, 500_000, tzinfo=UTC)
MOMENT_MS = 1_772_359_201_500


@dataclass(frozen=True)
class Customer:
    id: Annotated[str, lt.Key()]
    name: Annotated[str, lt.Alias("fullName")] = ""
    since: Annotated[datetime | None, lt.Epoch("ms")] = None
    trace: Annotated[str | None, lt.Header("trace-id")] = None
    gone: Annotated[bool, lt.Tombstone()] = False


@dataclass(frozen=True)
class Line:
    price: Annotated[int, lt.Alias("unitPrice")]
    times: list[Annotated[datetime, lt.Epoch("s")]] = field(default_factory=list)


@dataclass(frozen=True)
class Stood:
    topic: Annotated[str, lt.Topic()]
    text: str
    partition: Annotated[int, lt.Partition()]
    offset: Annotated[int, lt.Offset()]
    at: Annotated[datetime, lt.Timestamp()]
    number: Annotated[int | None, lt.Key()] = None
    blob: Annotated[bytes | None, lt.Header("blob")] = None
    line: Line | None = None
    lines: tuple[Line, ...] = ()
    named: dict[str, Line] = field(default_factory=dict)


def read(record: Any, *messages: tuple[bytes | None, bytes | None, Any]) -> Decoded[Any]:
    count = len(messages)
    rows = SourceRows(
        3,
        list(range(7, 7 + count)),
        [MOMENT_MS] * count,
        [key for key, _, _ in messages],
        [value for _, value, _ in messages],
        [pack_headers(headers) for _, _, headers in messages],
        topic="in",
        partition=2,
    )
    whole = lt.json(record).decode(rows)
    each = [lt.json(record).decode(rows.slice(index, index + 1)) for index in range(count)]
    assert [row for one in each for row in one.rows] == whole.rows, "however messages are cut into batches"
    return whole


def test_columns_come_from_where_their_markers_say() -> None:
    value = b'{"fullName":"Ann","since":1772359201500,"trace":"no","id":"no"}'
    found = read(Customer, (b"a", value, [("trace-id", b"1"), ("trace-id", b"2")]), (b"b", b"{}", []))
    assert found.rows == [Customer("a", "Ann", MOMENT, "2"), Customer("b")]
    value = b'{"text":"x","line":{"unitPrice":1,"times":[1,2]},"lines":[{"unitPrice":2}],"named":{"k":{"unitPrice":3}}}'
    (stood,) = read(Stood, (b"-12", value, [("blob", b"\xff")])).rows
    times = [datetime(1970, 1, 1, second=second, tzinfo=UTC) for second in (1, 2)]
    line = Line(1, times)
    assert stood == Stood("in", "x", 2, 7, MOMENT, -12, b"\xff", line, (Line(2),), {"k": Line(3)})
    written = value.replace(b"2}", b'2,"times":[]}').replace(b"3}", b'3,"times":[]}')
    assert lt.json(Stood).encode([stood, stood]) == [written] * 2


def test_a_tombstone_is_a_record_if_the_rest_has_defaults() -> None:
    found = read(Customer, (b"a", None, [("trace-id", b"t")]), (b"b", b'{"fullName":"Bob"}', []))
    assert found.rows == [Customer("a", trace="t", gone=True), Customer("b", "Bob")]

    @dataclass(frozen=True)
    class Strict:
        name: str
        gone: Annotated[bool, lt.Tombstone()] = False

    assert read(Strict, (None, None, [])).failures == [(0, "a null value lacks 'name', which has no default")]
    assert read(Stood, (None, None, [])).failures == [(0, "a null value is not JSON")]


def test_what_is_written_is_what_is_read() -> None:
    customers = [Customer("a", "Ann", MOMENT, "t"), Customer("b"), Customer("c", trace="x", gone=True)]
    columns = columns_of(Customer)
    values = lt.json(Customer).encode(customers)
    assert values == [b'{"fullName":"Ann","since":1772359201500}', b'{"fullName":"","since":null}', None]
    headers = [columns.headers(each) for each in customers]
    assert headers == [[("trace-id", b"t")], None, [("trace-id", b"x")]]
    again = [
        (each.id.encode(), value, found or []) for each, value, found in zip(customers, values, headers, strict=True)
    ]
    assert read(Customer, *again).rows == customers
    odd: list[tuple[str, bytes | None]] = [("a", b""), ("\u20ac", None), ("a", b"\xff")]
    assert (unpack_headers(pack_headers(odd)), pack_headers([])) == (odd, b"")


def test_what_does_not_fit_is_a_failure_with_its_reason() -> None:
    text = b'{"text":"x"}'
    whats = (
        "the message has no key; declare 'id' as str | None",
        "the key is not UTF-8 text",
        "header 'trace-id' is not UTF-8 text",
    )
    no_text = (b"a", b"{}", [("trace-id", b"\xff")])
    found = read(Customer, (None, b"{}", []), (b"\xff", b"{}", []), no_text, (b"d", b"{}", []))
    assert found.rows == [Customer("d")]
    assert [index for index, _ in found.failures] == [0, 1, 2]
    assert all(what in reason for what, (_, reason) in zip(whats, found.failures, strict=True))
    keys = (b"1_0", b" 1", b"", b"1" * 30, b"9223372036854775808", b"12")
    numbers = read(Stood, *((key, text, []) for key in keys))
    assert [row.number for row in numbers.rows] == [12]
    assert "the key is not a decimal integer: b'1_0'" in numbers.failures[0][1]
    (late,) = read(Customer, (b"a", b'{"since":99999999999999999}', [])).failures
    assert "is beyond what a datetime can hold" in late[1]
    (aliased,) = read(Customer, (b"a", b'{"fullName":1}', [])).failures
    assert aliased[1] == "Expected `str`, got `int` - at `$.fullName`"


def refused(hint: Any, what: str, more: Any = int) -> None:
    record: Any = dataclass(frozen=True)(type("Odd", (), {"__annotations__": {"a": hint, "b": more}}))
    with pytest.raises(SchemaRefused, match=what):
        columns_of(record)


def test_markers_that_do_not_fit_are_refused() -> None:
    refused(Annotated[str, lt.Key(), lt.Header("x")], r"Odd\.a: Key and Header do not go together")
    refused(Annotated[str, lt.Key(), lt.Alias("x")], "Key and Alias do not go together")
    refused(Annotated[str, lt.Alias("x"), lt.Alias("y")], "Alias and Alias do not go together")
    refused(Annotated[float, lt.Key()], r"Odd\.a: Key marks str or bytes or int, or that | None, found float")
    refused(Annotated[str | None, lt.Topic()], r"Topic marks str, found str \| None")
    refused(Annotated[int, lt.Timestamp()], "Timestamp marks datetime, found int")
    refused(Annotated[int, lt.Tombstone()], "Tombstone marks bool, found int")
    refused(Annotated[int, lt.Epoch("ms")], "Epoch marks datetime, or that | None, found int")
    refused(Annotated[datetime, lt.Epoch("min")], 'Epoch takes "s", "ms", "us" or "ns", found')  # type: ignore[arg-type]
    refused(Annotated[str, lt.Header("")], "Header takes a name")
    refused(Annotated[str, lt.Key], r"write lt\.Key\(\)")
    refused(Annotated[str, lt.Key()] | None, r"Key marks a whole field: write Annotated\[")
    refused(list[Annotated[str, lt.Header("x")]], "Header marks a whole field")
    refused(Annotated[str, lt.Key()], r"Odd\.b: the place Key\(\) is already taken by 'a'", Annotated[int, lt.Key()])
    refused(Annotated[str, lt.Alias("b")], r"Odd\.b: the name 'b' in the value is already taken by 'a'")
    refused(Customer, r"Customer\.id: Key belongs in the message's outermost record")


def test_a_flow_with_markers_that_do_not_fit_is_refused_with_the_line() -> None:
    @dataclass(frozen=True)
    class Odd:
        a: Annotated[float, lt.Key()]

    flow = lt.Flow("odd")
    flow.read("in", lt.kafka("in", lt.json(Odd))).write("out", lt.kafka("out", lt.json(Odd)))
    (finding,) = check_flow(flow)
    assert "Odd.a: Key marks str or bytes or int" in finding.message
    flow = lt.Flow("twice")
    flow.read("in", lt.kafka("in", lt.json(Customer))).write("out", lt.kafka("out", lt.json(Customer), key="name"))
    (finding,) = check_flow(flow)
    assert finding.message == "Customer.id is already the key, by lt.Key(); leave out key='name'"


def renamed(customer: Customer) -> Customer:
    return Customer(customer.id, customer.name.upper(), customer.since, customer.trace, customer.gone)


def test_a_run_here_and_now_takes_whole_messages() -> None:
    flow = lt.Flow("customers", dead_letters=lt.kafka("dead", lt.raw()))
    customers = flow.read("customers", lt.kafka("customers", lt.json(Customer)))
    customers.key_by("id").map(renamed).write("out", lt.kafka("out", lt.json(Customer)))
    out = flow.run_locally(
        customers=[
            lt.Message(b"a", b'{"fullName":"Ann"}', [("trace-id", b"t")]),
            lt.Message(b"a", None),
            lt.Message(None, b"{}"),
            Customer("b", "Bob"),
        ]
    )
    assert out["out"] == [Customer("a", "ANN", trace="t"), Customer("a", gone=True), Customer("b", "BOB")]
    (letter,) = out["dead-letters"]
    assert letter.error.endswith("the message has no key; declare 'id' as str | None if it may lack one")
    stood = lt.Flow("stood")
    stood.read("in", lt.kafka("topic", lt.json(Stood))).write("out", lt.kafka("out", lt.json(Stood)))
    (row,) = stood.run_locally({"in": [lt.Message(None, b'{"text":"x"}', timestamp=MOMENT)]})["out"]
    assert row == Stood("topic", "x", 0, 0, MOMENT)
    with pytest.raises(FlowError, match="has no time zone"):
        stood.run_locally({"in": [lt.Message(None, b"{}", timestamp=MOMENT.replace(tzinfo=None))]})


@dataclass(frozen=True)
class Traced:
    trace: Annotated[bytes, lt.Header("trace-id")]


def test_a_header_that_is_missing_is_named() -> None:
    (failure,) = read(Traced, (None, b"{}", [("other", b"x")])).failures
    assert failure[1] == "the message has no header 'trace-id'; declare 'trace' as bytes | None if it may lack one"
