"""A snapshot of each format, kept for good: every later version reads them, and none is ever written again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from lowtide_snapshots import JobRecord
from lowtide_snapshots.commits.verification import verify
from lowtide_snapshots.format.manifest import FloorAt, FrontAt, LaneLast, Manifest, type_of
from lowtide_snapshots.format.parts import (
    DELTA_FORMAT,
    KINDS,
    PART_FORMAT,
    UNITS_FORMAT,
    PartHead,
    by_unit,
    decode_part,
    sha256,
)
from lowtide_snapshots.stores import Store, StoreSetting, open_store

DATA = Path(__file__).parents[1] / "data"
NAME = "shop/manifests/000000000425000-000003-0007.json"
WORD = pa.struct([("word", pa.string())])
COUNT = pa.struct([("count", pa.int64()), ("pages", pa.list_(pa.int32()))])
ORDER = pa.struct([("customer", pa.string()), ("amount", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
BOUNDS = (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"))


def keyed(*customers: str) -> pa.Array:
    return pa.array([{"customer": each} for each in customers], pa.struct([("customer", pa.string())]))


def order_keys(*ticks: int) -> dict[str, pa.Array]:
    return {
        "tick": pa.array(ticks, pa.int64()),
        "front": pa.array([1] * len(ticks), pa.int32()),
        "sequence": pa.array(range(len(ticks)), pa.int64()),
        "child": pa.array([b"\x00\x00\x00\x02"] * len(ticks), pa.binary()),
        "trace": pa.array([2**64 - 1] * len(ticks), pa.uint64()),
    }


def orders(*amounts: float | None) -> pa.Array:
    return pa.array([{"customer": "Ebbe", "amount": each, "at": 424_750_000} for each in amounts], ORDER)


def bounds(*starts: int) -> dict[str, pa.Array]:
    return {
        "window_start": pa.array(starts, BOUNDS[0]),
        "window_end": pa.array([start + 60_000_000 for start in starts], BOUNDS[1]),
    }


FORMAT_1 = {
    ("index", 0): pa.table(
        {
            "key": pa.array([{"word": "be"}, {"word": "to"}], WORD),
            "state": pa.array([{"count": 2, "pages": [1, 7]}, {"count": 3, "pages": []}], COUNT),
        }
    ),
    ("index", 3): pa.table(
        {
            "key": pa.array([{"word": None}, {"word": "潮"}], WORD),
            "state": pa.array([None, {"count": 2**40, "pages": [9]}], COUNT),
        }
    ),
    ("last orders", 2): pa.table(
        {
            "key": pa.array([{"customer": "Ebbe"}] * 2, pa.struct([("customer", pa.string())])),
            "tick": pa.array([16_990, 16_999], pa.int64()),
            "front": pa.array([0, 1], pa.int32()),
            "sequence": pa.array([40, 0], pa.int64()),
            "child": pa.array([b"", b"\x00\x00\x00\x01"], pa.binary()),
            "trace": pa.array([7, 2**64 - 1], pa.uint64()),
            "record": pa.array(
                [
                    {"customer": "Ebbe", "amount": 12.5, "at": 424_750_000},
                    {"customer": "Ebbe", "amount": None, "at": 424_975_000},
                ],
                ORDER,
            ),
        }
    ),
    ("rates", 1): pa.table({"state": pa.array([[("EUR", 1.0), ("SEK", 11.25)]], pa.map_(pa.string(), pa.float64()))}),
}
FORMAT_2 = {
    ("index", 0): FORMAT_1["index", 0].append_column("tick", pa.array([16_001, 16_999], pa.int64())),
    ("last orders", 2): FORMAT_1["last orders", 2],
    ("rates", 1): FORMAT_1["rates", 1],
    ("seen", 3): pa.table({"key": keyed("Ebbe", "潮"), "tick": pa.array([16_990, 16_999], pa.int64())}),
    ("visits", 0): pa.table(
        {"key": keyed("Ebbe"), **bounds(420_000_000), "state": pa.array([{"count": 2, "pages": [1]}], COUNT)}
    ),
    ("sessions", 1): pa.table(
        {"key": keyed("Ebbe", "Ebbe"), **bounds(420_000_000, 420_000_000)}
        | {**order_keys(16_990, 16_991), "record": orders(12.5, None)}
    ),
    ("customers", 2): pa.table({"key": keyed("Ebbe"), "record": orders(0.5), "tick": pa.array([16_999], pa.int64())}),
    ("paid", 3): pa.table(
        {"key": keyed("Ebbe", "Ebbe"), **order_keys(16_990, 16_999), "record": orders(1.0, 2.0)}
        | {"paired": pa.array([True, False], pa.bool_())}
    ),
}
FORMAT_3 = {(vertex, 0 if vertex == "rates" else unit): table for (vertex, unit), table in FORMAT_2.items()}
FORMAT_4 = FORMAT_3 | {
    ("scored", 2): pa.table(
        {"key": pa.array([{"hash_unit": 2}] * 2, pa.struct([("hash_unit", pa.int64())]))}
        | {**order_keys(16_990, 16_999), "record": orders(2.5, None)}
    )
}
FORMAT_5 = FORMAT_4 | {("index", 3): FORMAT_1["index", 3].append_column("tick", pa.array([16_990, 16_999], pa.int64()))}
DELTAS = {
    ("index", 0): pa.table(
        {
            "key": pa.array([{"word": "to"}, {"word": "or"}, {"word": "be"}], WORD),
            "state": pa.array([{"count": 5, "pages": [2]}, {"count": 1, "pages": []}, None], COUNT),
            "tick": pa.array([16_999, 16_700, None], pa.int64()),
            "gone": pa.array([False, False, True]),
        }
    ),
    ("last orders", 1): pa.table(
        {"key": keyed("潮"), **order_keys(16_999), "record": orders(3.5), "gone": pa.array([False])}
    ),
}
"""Of format 5: one that applies to the part of an older snapshot, and one of a unit that had no state before."""
DELTAS_6 = DELTAS | {
    ("index", unit): pa.table(
        {
            "key": pa.array([{"word": word}], WORD),
            "state": pa.array([{"count": 6, "pages": []}], COUNT),
            "tick": pa.array([16_999], pa.int64()),
            "gone": pa.array([False]),
        }
    )
    for unit, word in ((1, "new"), (2, "lost"))
}
"""Of format 6: those of index are one part, which does not count for the unit of "lost" any more."""
SINCE = 16_500
STATE = {1: FORMAT_1, 2: FORMAT_2, 3: FORMAT_3, 4: FORMAT_4, 5: FORMAT_5, 6: FORMAT_5}
TYPES = {
    1: {
        "index": ("scan", (("word", "string"),), COUNT),
        "last orders": ("last", (("customer", "string"),), ORDER),
        "rates": ("broadcast", (), pa.map_(pa.string(), pa.float64())),
    }
}
BY_CUSTOMER = (("customer", "string"),)
TYPES[2] = TYPES[1] | {
    "seen": ("deduplicate", BY_CUSTOMER, pa.int64()),
    "visits": ("window", BY_CUSTOMER, COUNT),
    "sessions": ("window_records", BY_CUSTOMER, ORDER),
    "customers": ("table", BY_CUSTOMER, ORDER),
    "paid": ("join", BY_CUSTOMER, ORDER),
}
TYPES[3] = TYPES[2]
TYPES[4] = TYPES[3] | {"scored": ("call", (("hash_unit", "int64"),), ORDER)}
TYPES[5] = TYPES[6] = TYPES[4]
OLDER = (16_000, "000001-0002")
NEWER = (17_000, "000003-0007")


@pytest.fixture(scope="module", params=list(STATE), name="number", ids=lambda number: f"format {number}")
def _number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def store(number: int) -> Store:
    return open_store(StoreSetting(str(DATA / f"format-{number}")))


def test_there_is_one_of_each_format() -> None:
    assert {each.name for each in DATA.iterdir()} == {f"format-{number}" for number in range(1, PART_FORMAT + 1)}
    assert {shape[0] for shape in TYPES[PART_FORMAT].values()} == set(KINDS)


@pytest.fixture(scope="module")
def manifest(store: Store) -> Manifest:
    return Manifest.from_json(store.get(NAME), NAME)


def test_the_manifest_says_what_it_said(manifest: Manifest) -> None:
    assert (manifest.job, manifest.id, manifest.name, manifest.tick, manifest.incarnation, manifest.base) == (
        "shop",
        "000003-0007",
        "before the sale",
        17_000,
        3,
        "000001-0002",
    )
    assert manifest.path == NAME
    assert manifest.created == "2026-01-31T12:00:00.000Z"
    assert manifest.record == JobRecord("shop", 25, 4, 2, "log", 1, ("orders=shop-orders",))
    assert manifest.fronts == (FrontAt(0, "orders", "x7", 0, 41, 16_999), FrontAt(1, "orders", "x7", 1, 0, None))
    assert manifest.floors == (FloorAt(0, 41, 16_999, False), FloorAt(1, 3, 17_004, True))
    assert manifest.lasts == (LaneLast(1, "out", 0, None), LaneLast(1, "out", 1, "16999/1/0"))


def test_every_part_holds_what_it_held(number: int, manifest: Manifest, store: Store) -> None:
    whole, deltas = STATE[number], DELTAS_6 if number >= UNITS_FORMAT else DELTAS if number >= DELTA_FORMAT else {}
    assert {(part.vertex, part.unit) for part in manifest.parts if part.since is None} == set(whole)
    changed = [part for part in manifest.parts if part.since is not None]
    assert {(part.vertex, unit) for part in changed for unit in part.counts_for} | {("index", 2)} & set(deltas) == set(
        deltas
    )
    assert [part.units for part in changed if part.units] == ([(0, 1)] if number >= UNITS_FORMAT else [])
    for part in manifest.parts:
        name = part.name("shop", 25)
        data = store.get(name)
        assert (len(data), sha256(data)) == (part.bytes, part.sha256)
        head, table = decode_part(data, name)
        of = part.vertex, part.kind, part.unit, part.tick, 25, part.snapshot, part.since
        assert head == PartHead("shop", *of, units=(0, 1, 2) if part.units else ())
        place = part.vertex, part.unit
        assert part.since in (None, SINCE)
        assert (part.tick, part.snapshot) == (OLDER if place == ("index", 0) and part.since is None else NEWER)
        for unit, rows in (by_unit(table) if part.units else {part.unit: table}).items():
            assert rows.equals((whole if part.since is None else deltas)[part.vertex, unit])
        assert table.num_rows == part.rows


def test_all_of_it_is_whole(manifest: Manifest, store: Store) -> None:
    assert verify(store, manifest, lambda *_: None) == []


def test_the_types_are_those_that_they_were(number: int, manifest: Manifest) -> None:
    assert {shape.vertex: (shape.kind, shape.key, type_of(shape)) for shape in manifest.flow} == TYPES[number]


def test_nothing_else_is_there(manifest: Manifest, store: Store) -> None:
    assert {entry.name for entry in store.names("")} == {NAME, *(part.name("shop", 25) for part in manifest.parts)}


@pytest.mark.parametrize("units", [(0, 3), (0, 1, 2, 3), ()])
def test_a_part_that_lacks_a_hash_unit_of_its_manifest_is_damaged(units: tuple[int, ...]) -> None:
    store = open_store(StoreSetting(str(DATA / "format-6")))
    manifest = Manifest.from_json(store.get(NAME), NAME)
    wrong = tuple(dataclasses.replace(part, units=units) if part.units else part for part in manifest.parts)
    (damage,) = verify(store, dataclasses.replace(manifest, parts=wrong), lambda *_: None)
    assert "its head says" in damage.why
