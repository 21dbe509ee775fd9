"""Messages become records and back; the same one by one as in a batch, whatever they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs import rows_of_values

from lowtide.flow.formats.formats import json, raw
from lowtide.flow.schema.fields import decoder_of, encode_rows
from lowtide.flow.schema.raw_record import Raw


@dataclass(frozen=True)
class Pair:
    a: int = 0
    b: str = ""


def decode(values: list[bytes | None]) -> tuple[list[Pair], list[tuple[int, str]]]:
    decoded = json(Pair).decode(rows_of_values(values))
    return decoded.rows, decoded.failures


def one_by_one(values: list[bytes | None]) -> tuple[list[Pair], list[tuple[int, str]]]:
    rows, failures = [], []
    for index, value in enumerate(values):
        try:
            rows.append(msgspec.json.decode(value if value is not None else b"null", type=Pair))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            failures.append((index, "a null value is not JSON" if value is None else str(error)))
    return rows, failures


adversarial = st.sampled_from(
    [
        b"{}", b'{"a":1}', b'{"a":2,"b":"x"}', b"", b" ", b"\n", b"1\n2", b"{}\n{}", b"{}{}", b"{} {}", b"{},{}",
        b'{"a":1,', b'"b":"x"}', b'{"a":', b"1}", b'{\n"a":1}', b'{"a":1}\n', b'\n{"a":1}', b'{"b":"x\ny"}',
        b'{"b":"x\\ny"}', b'{"b":"', b'"}', b"[{}]", b"null", b"{", b"}", b"}{", b'{"a":"1"}', b'{"a":1.5}', b"\xff",
        b'{"b":"\xff"}', b'{"c":{"a":1}}', b'{"c":[{}', b"{}]}", b"{}\r", b"\xef\xbb\xbf{}", b'{"a":1}\x00', None,
    ]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(adversarial | st.binary(max_size=8), max_size=6))
@example([b"", b"{}{}"])
@example([b'{"a":1,', b'"b":"x"}', b"{}{}"])
@example([b'{"b":"', b'"}', b"{}\n{}"])
@example([b'{"b":"}', b'{"}', b"{}{}"])
def test_a_batch_is_decoded_as_its_messages_are_one_by_one(values: list[bytes | None]) -> None:
    assert decode(values) == one_by_one(values)


@dataclass(frozen=True)
class Inner:
    a: int
    b: int = 2


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int = 1
    inner: Inner = Inner(0)


@dataclass(frozen=True)
class Outer:
    one: Inner
    perhaps: Inner | None = None
    listed: tuple[Inner, ...] = ()
    named: dict[str, list[Inner]] = field(default_factory=dict)
    slotted: Slotted = Slotted()
    text: str = "x"


@pytest.mark.parametrize(
    ("value", "record"),
    [
        (b'{"one":{"a":1}}', Outer(Inner(1))),
        (b'{"one":{"a":1,"b":3},"perhaps":{"a":4},"text":"y"}', Outer(Inner(1, 3), Inner(4), text="y")),
        (
            b'{"one":{"a":1},"perhaps":null,"listed":[{"a":1},{"a":2,"b":0}]}',
            Outer(Inner(1), None, (Inner(1), Inner(2, 0))),
        ),
        (b'{"one":{"a":1},"named":{"k":[{"a":5}],"l":[]}}', Outer(Inner(1), named={"k": [Inner(5)], "l": []})),
        (b'{"one":{"a":1},"slotted":{"inner":{"a":7}}}', Outer(Inner(1), slotted=Slotted(inner=Inner(7)))),
    ],
)
def test_what_a_message_lacks_is_written_with_its_default(value: bytes, record: Outer) -> None:
    """The record itself has it, as one that was made by its constructor has."""
    (decoded,) = json(Outer).decode(rows_of_values([value])).rows
    assert decoded == record
    assert json(Outer).encode([decoded]) == json(Outer).encode([record])
    assert b'"text":' in (json(Outer).encode([decoded])[0] or b"")
    assert encode_rows([decoded]) == encode_rows([record])


@dataclass(frozen=True)
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise KeyError(self.number)


def test_a_record_that_refuses_its_own_fields_is_a_failure() -> None:
    values = [b'{"number":1}', b'{"number":-1}', b'{"number":2}']
    decoded = json(Positive).decode(rows_of_values(values))
    assert decoded.rows == [Positive(1), Positive(2)]
    assert decoded.failures == [(1, "KeyError: -1")]


def test_a_failure_names_its_index_and_the_reason() -> None:
    rows, failures = decode([b'{"a":1}', b'{"a":"1"}', b"nonsense", None])
    assert rows == [Pair(1)]
    assert [index for index, _ in failures] == [1, 2, 3]
    assert failures[0][1] == "Expected `int`, got `str` - at `$.a`"


@settings(deadline=None)
@given(st.lists(st.builds(Pair, st.integers(-(2**63), 2**63 - 1), st.text())))
def test_what_is_encoded_is_decoded_as_the_same(rows: list[Pair]) -> None:
    values = json(Pair).encode(rows)
    assert values == [msgspec.json.encode(row) for row in rows]
    assert decode(values) == (rows, [])


strings: Any = st.lists(st.none() | st.binary(max_size=4))


@settings(deadline=None)
@given(strings)
def test_raw_messages_stay_as_they_are(values: list[bytes | None]) -> None:
    keys = values[::-1]
    decoded = raw().decode(rows_of_values(values, keys))
    assert decoded.rows == list(map(Raw, keys, values))
    assert raw().encode(decoded.rows) == values
    assert not decoded.failures


@dataclass(frozen=True)
class Measured:
    unit: str = field(default="m", kw_only=True)


@dataclass(frozen=True)
class Place:
    city: str
    streets: tuple[str, ...] = ("a",)
    height: float = 1.5


@dataclass(frozen=True)
class Walk(Measured):
    name: str
    start: Place = Place("home")
    stops: list[Place] = field(default_factory=list)
    length: int | None = None


@dataclass(slots=True)
class SlottedPlace:
    name: str
    place: Place
    size: int = 3


def test_what_is_written_has_all_fields_though_what_was_read_lacked_them() -> None:
    """A default that a record found at its class was not written: nested, inherited, as it came or from an exchange."""
    messages = [b'{"name":"a","start":{"city":"b"},"stops":[{"city":"c","height":2}]}', b'{"name":"a","unit":"km"}']
    home = b'{"city":"home","streets":["a"],"height":1.5}'
    b, c = home.replace(b"home", b"b"), home.replace(b"home", b"c").replace(b"1.5", b"2.0")
    expected = [
        b'{"unit":"m","name":"a","start":' + b + b',"stops":[' + c + b'],"length":null}',
        b'{"unit":"km","name":"a","start":' + home + b',"stops":[],"length":null}',
    ]
    walks = json(Walk).decode(rows_of_values(messages)).rows
    passed_on = decoder_of(Walk)(encode_rows(walks))
    for rows in (walks, passed_on):
        assert json(Walk).encode(rows) == expected
    assert walks == passed_on == [Walk("a", Place("b"), [Place("c", height=2.0)]), Walk("a", unit="km")]
    slotted = json(SlottedPlace).decode(rows_of_values([b'{"name":"a","place":{"city":"b"}}'])).rows
    assert json(SlottedPlace).encode(slotted) == [
        b'{"name":"a","place":{"city":"b","streets":["a"],"height":1.5},"size":3}'
    ]
    assert (Place.height, Walk.unit, Walk.start) == (1.5, "m", Place("home")), "at the class they are as ever"
