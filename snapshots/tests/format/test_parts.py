"""Parts: what is encoded is decoded, and what is damaged, of another form or too new is refused."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide_snapshots.errors import FormatTooNew, PartDamaged, PartRefused
from lowtide_snapshots.format.names import ObjectName, incarnation_of, manifest_name, parse_name, part_name, snapshot_id
from lowtide_snapshots.format.parts import PartHead, by_unit, decode_part, encode_part, sha256
from lowtide_snapshots.keys.hashing import MAX_UNITS

HEAD = PartHead("shop/1", "the index", "scan", 3, 17_000, 25, "000003-0007")
KEYS = pa.array([{"word": "be", "day": datetime.date(2026, 1, 31)}, {"word": "潮", "day": None}])
SCAN = pa.table({"key": KEYS, "state": pa.array([{"count": 2, "pages": [1, 7]}, {"count": 1, "pages": []}])})
LAST = pa.table(
    {
        "key": KEYS,
        "tick": pa.array([16_000, 16_999], pa.int64()),
        "front": pa.array([0, 1], pa.int32()),
        "sequence": pa.array([2**40, 0], pa.int64()),
        "child": pa.array([b"", b"\x00\x01"], pa.binary()),
        "trace": pa.array([0, 2**64 - 1], pa.uint64()),
        "record": pa.array([{"x": 1.5}, {"x": None}]),
    }
)
BROADCAST = pa.table({"state": pa.array([{"rates": [1.0]}])})
TICKS = pa.array([16_000, 16_999], pa.int64())
FORGETTING = SCAN.append_column("tick", TICKS)
ONCE = pa.table({"key": KEYS, "tick": TICKS})
TABLES = [("scan", SCAN), ("scan", FORGETTING), ("last", LAST), ("broadcast", BROADCAST), ("deduplicate", ONCE)]


def _head(kind: str) -> PartHead:
    return dataclasses.replace(HEAD, kind=kind)


def _edited(*left_out: str, **changes: object) -> bytes:
    """A part whose head says something else, or lacks something."""
    data = encode_part(HEAD, SCAN)
    schema = pq.read_schema(pa.BufferReader(data))
    said = json.loads(schema.metadata[b"lowtide.part"]) | changes
    said = {name: value for name, value in said.items() if name not in left_out}
    sink = pa.BufferOutputStream()
    pq.write_table(SCAN.replace_schema_metadata({"lowtide.part": json.dumps(said)}), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(("kind", "made"), TABLES)
def test_a_part_comes_back(kind: str, made: pa.Table) -> None:
    head, table = decode_part(encode_part(_head(kind), made), HEAD.name)
    assert head == _head(kind)
    assert table.equals(made)
    assert table.schema.metadata is None


@pytest.mark.parametrize(
    "state",
    [
        pa.array(["a", None], pa.large_string()),
        pa.array([1, None], pa.uint16()),
        pa.array([datetime.datetime(2026, 1, 31), None], pa.timestamp("us", "Europe/Berlin")),
        pa.array([datetime.timedelta(seconds=1), None], pa.duration("ms")),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([None, None]),
    ],
    ids=lambda state: str(state.type),
)
def test_a_state_keeps_its_type(state: pa.Array) -> None:
    table = pa.table({"key": KEYS, "state": state})
    assert decode_part(encode_part(HEAD, table), HEAD.name)[1].equals(table)


def test_the_same_rows_are_the_same_bytes() -> None:
    again = pa.concat_tables([SCAN.slice(0, 1), SCAN.slice(1, 1)]).combine_chunks()
    assert encode_part(HEAD, SCAN) == encode_part(HEAD, again.replace_schema_metadata({"other": "metadata"}))


def test_a_part_is_compressed_in_large_row_groups_with_statistics() -> None:
    n = 131_073
    table = pa.table({"key": pa.array([{"n": i} for i in range(n)]), "state": pa.array([7] * n)})
    about = pq.ParquetFile(pa.BufferReader(encode_part(HEAD, table))).metadata
    assert [about.row_group(at).num_rows for at in range(about.num_row_groups)] == [131_072, 1]
    assert about.row_group(0).column(0).compression == "ZSTD"
    assert about.row_group(0).column(0).statistics.max == 131_071


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("scan", LAST),
        ("scan", SCAN.select(["state", "key"])),
        ("scan", SCAN.set_column(0, "key", pa.array(["not", "a struct"]))),
        ("last", LAST.set_column(1, "tick", pa.array([1, 2], pa.int32()))),
        ("last", LAST.set_column(6, "record", pa.array([1, 2]))),
        ("scan", SCAN.append_column("tick", pa.array([1, 2], pa.int32()))),
        ("scan", SCAN.append_column("ticks", TICKS)),
        ("deduplicate", FORGETTING),
        ("broadcast", pa.concat_tables([BROADCAST, BROADCAST])),
        ("broadcast", BROADCAST.slice(0, 0)),
        ("counter", SCAN),
        (
            "scan",
            SCAN.set_column(
                1,
                "state",
                pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])]),
            ),
        ),
    ],
)
def test_a_table_of_another_form_is_neither_written_nor_read(kind: str, table: pa.Table) -> None:
    with pytest.raises(PartRefused, match="what to do"):
        encode_part(_head(kind), table)
    sink = pa.BufferOutputStream()
    said = {"format": 1} | dataclasses.asdict(_head(kind))
    try:
        pq.write_table(table.replace_schema_metadata({"lowtide.part": json.dumps(said)}), sink)
    except pa.ArrowNotImplementedError:
        return
    with pytest.raises(PartDamaged, match="what to do"):
        decode_part(bytes(sink.getvalue()), HEAD.name)


def test_a_part_that_is_cut_off_anywhere_is_damaged() -> None:
    data = encode_part(HEAD, SCAN)
    for length in range(len(data)):
        with pytest.raises(PartDamaged, match="00003"):
            decode_part(data[:length], HEAD.name)


def test_no_bit_that_flips_does_more_harm_than_damage() -> None:
    data = bytes(encode_part(HEAD, SCAN))
    harmless = 0
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        try:
            head, _ = decode_part(flipped, HEAD.name)
            assert head.name == HEAD.name
            harmless += 1
        except (PartDamaged, FormatTooNew):
            pass
        # What decoding cannot see, the manifest does.
        assert sha256(flipped) != sha256(data)
    assert harmless < len(data) / 2


def test_state_that_is_changed_in_its_place_is_damaged() -> None:
    table = pa.table({"key": pa.array([{"n": 1}]), "state": pa.array([b"to be or not to be" * 9])})
    sink = pa.BufferOutputStream()
    said = json.dumps({"format": 6} | dataclasses.asdict(HEAD))
    pq.write_table(
        table.replace_schema_metadata({"lowtide.part": said}),
        sink,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    data = bytes(sink.getvalue())
    assert decode_part(data, HEAD.name)[1].equals(table)
    with pytest.raises(PartDamaged):
        decode_part(data.replace(b"or not", b"and so", 1), HEAD.name)


@pytest.mark.parametrize(
    "change",
    [
        {"job": "shop/2"},
        {"vertex": "totals"},
        {"unit": 4},
        {"tick": 17_001},
        {"slack_ms": 24},
        {"snapshot": "000003-0008"},
    ],
    ids=str,
)
def test_another_part_under_its_name_is_damaged(change: dict[str, object]) -> None:
    with pytest.raises(PartDamaged, match="its head says that it is"):
        decode_part(_edited(**change), HEAD.name)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"format": "1"},
        {"unit": "3"},
        {"unit": True},
        {"more": 1},
        {"since": "16500"},
        {"since": True},
        {"units": None},
        {"units": [3, 4]},
        {"unit": -1},
        {"snapshot": "x"},
        {"vertex": ""},
    ],
    ids=str,
)
def test_a_head_that_is_none_is_damaged(change: dict[str, object]) -> None:
    with pytest.raises(PartDamaged):
        decode_part(_edited(**change), HEAD.name)


def test_a_parquet_file_of_another_is_damaged() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(SCAN, sink)
    with pytest.raises(PartDamaged, match="no head"):
        decode_part(bytes(sink.getvalue()), HEAD.name)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_part_of_an_earlier_format_is_read(number: int) -> None:
    assert decode_part(_edited("since", "units", format=number), HEAD.name) == (HEAD, SCAN)
    with pytest.raises(PartDamaged, match="its head is"):
        decode_part(_edited("units", format=number), HEAD.name)
    with pytest.raises(PartDamaged, match="its head is"):
        decode_part(_edited("since"), HEAD.name)


def test_a_part_of_format_5_has_one_hash_unit() -> None:
    assert decode_part(_edited("units", format=5), HEAD.name) == (HEAD, SCAN)
    for part in (_edited(format=5), _edited("units")):
        with pytest.raises(PartDamaged, match="its head is"):
            decode_part(part, HEAD.name)


def _delta(made: pa.Table, *gone: bool) -> pa.Table:
    return made.append_column("gone", pa.array(gone, pa.bool_()))


@pytest.mark.parametrize(("kind", "made"), [each for each in TABLES if each[0] != "broadcast"])
def test_a_delta_comes_back(kind: str, made: pa.Table) -> None:
    head = dataclasses.replace(_head(kind), since=16_500)
    assert decode_part(encode_part(head, _delta(made, False, True)), HEAD.name) == (head, _delta(made, False, True))


@pytest.mark.parametrize(
    ("head", "made"),
    [
        (HEAD, _delta(SCAN, False, True)),
        (dataclasses.replace(HEAD, since=16_500), SCAN),
        (dataclasses.replace(HEAD, since=16_500), SCAN.append_column("gone", pa.array([0, 1]))),
        (dataclasses.replace(HEAD, since=16_500), SCAN.append_column("went", pa.array([False, True]))),
        (dataclasses.replace(HEAD, kind="broadcast", since=16_500), _delta(BROADCAST, False)),
    ],
    ids=["whole", "without", "a number", "another name", "of no keys"],
)
def test_a_delta_has_one_column_more_and_no_other_part_has_it(head: PartHead, made: pa.Table) -> None:
    with pytest.raises(PartRefused, match=r"its columns are|column gone is int64"):
        encode_part(head, made)


OF_SEVERAL = dataclasses.replace(HEAD, since=16_500, units=(3, 7))


def _several(*units: int) -> pa.Table:
    return _delta(SCAN, False, True).append_column("hash_unit", pa.array(units, pa.int32()))


def test_a_delta_of_several_hash_units_comes_back_by_unit() -> None:
    head, table = decode_part(encode_part(OF_SEVERAL, _several(3, 7)), HEAD.name)
    assert head == OF_SEVERAL
    delta = _delta(SCAN, False, True)
    found = by_unit(table)
    assert list(found) == [3, 7]
    assert found[3].equals(delta.slice(0, 1))
    assert found[7].equals(delta.slice(1))


@pytest.mark.parametrize(
    ("head", "made"),
    [
        (OF_SEVERAL, _several(7, 3)),
        (OF_SEVERAL, _several(3, 3)),
        (OF_SEVERAL, _several(3, 8)),
        (OF_SEVERAL, _delta(SCAN, False, True)),
        (dataclasses.replace(OF_SEVERAL, units=()), _several(3, 7)),
        (dataclasses.replace(OF_SEVERAL, units=(7, 3)), _several(7, 3)),
        (dataclasses.replace(OF_SEVERAL, unit=7), _several(3, 7)),
        (dataclasses.replace(OF_SEVERAL, since=None), SCAN),
    ],
    ids=["order", "one is missing", "another", "no column", "of one", "units in no order", "name", "whole"],
)
def test_the_hash_units_of_a_part_are_those_of_its_rows(head: PartHead, made: pa.Table) -> None:
    with pytest.raises(PartRefused, match=r"hash unit|its columns are"):
        encode_part(head, made)


def test_a_newer_format_is_refused_as_such() -> None:
    with pytest.raises(FormatTooNew, match="format 7; this version of Lowtide reads up to 6"):
        decode_part(_edited(format=7, more="fields"), HEAD.name)


def test_names_are_those_of_the_document() -> None:
    assert HEAD.name == "shop%2F1/parts/the%20index/00003/000000000425000-000003-0007.parquet"
    assert manifest_name("shop/1", 425_000, "000003-0007") == "shop%2F1/manifests/000000000425000-000003-0007.json"
    assert snapshot_id(3, 7) == "000003-0007"
    assert incarnation_of("1234567-00012") == 1_234_567


NAMES = st.text(st.characters(codec="utf-8"), min_size=1)
MS = st.integers(0, 10**15 - 1)
IDS = st.builds(snapshot_id, st.integers(1, 10**8), st.integers(0, 10**6))


@given(NAMES, NAMES, st.integers(0, MAX_UNITS - 1), MS, IDS)
def test_names_are_read_back(job: str, vertex: str, unit: int, ms: int, snapshot: str) -> None:
    name = part_name(job, vertex, unit, ms, snapshot)
    assert parse_name(name) == ObjectName(job, vertex, unit, ms, snapshot)
    assert parse_name(manifest_name(job, ms, snapshot)) == ObjectName(job, None, None, ms, snapshot)
    assert not any(step in ("", ".", "..") for step in name.split("/"))


@given(st.lists(st.tuples(MS, st.integers(1, 999_999), st.integers(0, 9_999)), min_size=2))
def test_names_sort_as_their_times_and_lives(times: list[tuple[int, int, int]]) -> None:
    names = {at: manifest_name("shop", at[0], snapshot_id(*at[1:])) for at in times}
    assert [names[at] for at in sorted(names)] == sorted(names.values())


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "shop/parts/x/3/1-000003-0007.parquet", "shop/manifests/000000000425000-3-7.json", HEAD.name + "x"],
)
def test_what_is_no_name_is_none(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize(
    ("unit", "ms", "snapshot"),
    [(-1, 0, "000003-0007"), (MAX_UNITS, 0, "000003-0007"), (0, -1, "000003-0007"), (0, 10**15, "000003-0007")]
    + [(0, 0, wrong) for wrong in ("", "3-7", "000003-0007\n", "../000003-0007")],
)
def test_what_has_no_place_in_a_name_is_refused(unit: int, ms: int, snapshot: str) -> None:
    with pytest.raises(PartRefused):
        part_name("shop", "index", unit, ms, snapshot)
