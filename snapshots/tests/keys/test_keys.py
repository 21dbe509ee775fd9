import datetime
import decimal
import enum
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowtide_snapshots.errors import KeyRefused
from lowtide_snapshots.keys.canonical import KeyValue, encode_key, encode_value

UTC = datetime.UTC
NOON = datetime.datetime(2026, 1, 31, 12)

VALUES: st.SearchStrategy[KeyValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
)


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, "00"),
        (False, "0100"),
        (True, "0101"),
        (1, "020100000000000000"),
        (-(2**63), "020000000000000080"),
        ("", "03"),
        ("to be", "03746f206265"),
        ("潮", "03e6bdae"),
        (b"\x00\xff", "0400ff"),
        (datetime.date(1970, 1, 1), "050000000000000000"),
        (datetime.date(1969, 12, 31), "05ffffffffffffffff"),
        (NOON, "06003049d4ad490600"),
        (Colour.RED, "03726564"),
    ],
)
def test_a_value_is_a_tag_and_its_bytes(value: KeyValue, encoded: str) -> None:
    assert encode_value(value).hex() == encoded


def test_a_key_of_several_columns_has_lengths() -> None:
    assert encode_key(["a", 1]).hex() == "02000000" + "0361" + "09000000" + "020100000000000000"
    assert encode_key(["a"]) == encode_value("a")


def test_a_time_zone_does_not_change_the_instant() -> None:
    tokyo = datetime.timezone(datetime.timedelta(hours=9))
    assert encode_value(NOON.replace(tzinfo=UTC).astimezone(tokyo)) == encode_value(NOON.replace(tzinfo=UTC))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(VALUES, min_size=2, max_size=2), st.lists(VALUES, min_size=2, max_size=2))
def test_keys_with_the_same_bytes_are_the_same_key(one: list[KeyValue], other: list[KeyValue]) -> None:
    # In Python True == 1, which are two keys here; so types are compared too.
    same = one == other and [type(value) for value in one] == [type(value) for value in other]
    assert (encode_key(one) == encode_key(other)) == same
    assert (encode_key(one[:1]) == encode_key(other[:1])) == (one[0] == other[0] and type(one[0]) is type(other[0]))


@pytest.mark.parametrize(
    ("left", "right"), [(["ab", "c"], ["a", "bc"]), (["", "a"], ["a", ""]), ([None, 1], [1, None])]
)
def test_columns_do_not_run_into_each_other(left: Sequence[KeyValue], right: Sequence[KeyValue]) -> None:
    assert encode_key(left) != encode_key(right)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1.0, "a float cannot be a key"),
        (2**63, "does not fit into 64 bits"),
        ("\ud800", "cannot be encoded in UTF-8"),
        (decimal.Decimal(1), "a Decimal cannot be a key"),
        ((1, 2), "a tuple cannot be a key"),
    ],
)
def test_what_has_no_encoding_is_refused(value: object, why: str) -> None:
    with pytest.raises(KeyRefused, match=why):
        encode_value(value)  # type: ignore[arg-type]


def test_a_key_without_columns_is_refused() -> None:
    with pytest.raises(KeyRefused, match="at least one column"):
        encode_key([])
