import datetime
import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowtide_snapshots import HASH_VERSION, MAX_UNITS, KeyRefused, hash_unit, hash_units
from lowtide_snapshots.keys.canonical import KeyValue, encode_key

UNITS = 128
NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)

# Hash version 1. These never change: state of running jobs lies where they say.
GOLDEN: list[tuple[list[KeyValue], int]] = [
    ([None], 91),
    ([True], 115),
    ([1], 23),
    ([-1], 101),
    ([""], 109),
    (["to be"], 29),
    (["Ebbe & 潮"], 46),
    ([b"\x00\xff"], 123),
    ([datetime.date(2026, 1, 31)], 26),
    ([NOON], 76),
    (["a", 1], 70),
    (["a", None], 97),
]

COLUMNS = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**63 - 1),
    pa.string(): st.text(max_size=3),
    pa.large_string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.large_binary(): st.binary(max_size=3),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.timestamp("s"): st.datetimes().map(lambda at: at.replace(microsecond=0)),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", tz="Asia/Tokyo"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", "b"]),
}


@st.composite
def key_columns(draw: st.DrawFn) -> list[pa.Array]:
    """One to three key columns of one length, with nulls and repetitions, on both sides of the small batch."""
    rows = draw(st.integers(0, 6))
    columns = []
    for kind in draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3)):
        values = draw(st.lists(st.none() | COLUMNS[kind], min_size=rows, max_size=rows))
        columns.append(pa.array(values, kind))
    repeats = draw(st.sampled_from([1, 40]))
    return [pa.concat_arrays([column] * repeats) for column in columns]


def test_golden_values() -> None:
    assert HASH_VERSION == 1
    for key, unit in GOLDEN:
        assert hash_unit(key, UNITS) == unit, key
        columns = [pa.array([value]) for value in key]
        assert hash_units(columns, UNITS).tolist() == [unit], key
        large = [pa.array([value] * 1000) for value in key]
        assert set(hash_units(large, UNITS).tolist()) == {unit}, key


# The first draw of text is slow where Hypothesis has not yet cached its tables of characters.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(key_columns(), st.integers(1, MAX_UNITS))
def test_a_batch_is_hashed_as_its_keys_one_by_one(columns: list[pa.Array], units: int) -> None:
    found = hash_units(columns, units)
    keys = zip(*(column.to_pylist() for column in columns), strict=True)
    assert found.dtype == np.int32
    assert found.tolist() == [hash_unit(key, units) for key in keys]


@pytest.mark.parametrize("rows", [3, 1000])
def test_layout_and_width_do_not_matter(rows: int) -> None:
    numbers = [row % 100 for row in range(rows)]
    expected = hash_units([pa.array(numbers, pa.int64())], UNITS)
    for kind in (pa.int8(), pa.int32(), pa.uint16(), pa.uint64()):
        assert np.array_equal(hash_units([pa.array(numbers, kind)], UNITS), expected)
    column = pa.array(["?", "?", *(str(number) for number in numbers)])[2:]
    expected = hash_units([column], UNITS)
    assert np.array_equal(hash_units([column.cast(pa.large_string())], UNITS), expected)
    assert np.array_equal(hash_units([column.dictionary_encode()], UNITS), expected)
    assert np.array_equal(hash_units([pa.chunked_array([column[:1], column[1:]])], UNITS), expected)


def test_keys_spread_over_the_units() -> None:
    counts = np.bincount(hash_units([pa.array(range(128_000))], UNITS), minlength=UNITS)
    assert counts.min() > 850
    assert counts.max() < 1150


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([1.0]), "a column of double cannot be a key: nearly equal floats"),
        (pa.array([1.0], pa.float32()), "a column of float cannot be a key"),
        (pa.array([[1]]), "a column of list<.*> cannot be a key; key types are"),
        (pa.array([2**64 - 1], pa.uint64()), "does not fit into 64 bits"),
        (pa.array([1], pa.timestamp("ns")), "cannot be a key"),
        (pa.array([1.0]).dictionary_encode(), "a column of double cannot be a key"),
    ],
)
def test_what_has_no_encoding_is_refused(column: pa.Array, why: str) -> None:
    with pytest.raises(KeyRefused, match=why):
        hash_units([column], UNITS)


def test_columns_of_unequal_length_and_bad_units_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in length: \[1, 2\]"):
        hash_units([pa.array([1]), pa.array([1, 2])], UNITS)
    with pytest.raises(KeyRefused, match="at least one column"):
        hash_units([], UNITS)
    for units in (0, MAX_UNITS + 1):
        with pytest.raises(ValueError, match=f"units is {units}"):
            hash_units([pa.array([1])], units)


def test_the_readme_tells_the_truth() -> None:
    readme = Path(__file__).parents[2] / "README.md"
    assert doctest.testfile(str(readme), module_relative=False).failed == 0
    rows = re.findall(r"^\| .* \| `(\w+)` \| `(\w{16})` \| (\d+) \|$", readme.read_text(), re.MULTILINE)
    for (key, unit), (encoded, hashed, unit_text) in zip(GOLDEN, rows, strict=True):
        assert encode_key(key).hex() == encoded
        assert xxhash.xxh3_64_hexdigest(bytes.fromhex(encoded)) == hashed
        assert int(hashed, 16) % UNITS == int(unit_text) == unit


def test_python_hash_seeds_do_not_matter() -> None:
    code = (
        "import pyarrow as pa; from lowtide_snapshots import hash_units; print(hash_units([pa.array(['a', 'b'])], 128))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
