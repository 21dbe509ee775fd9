"""Manifests: held against literal JSON, and refused where they are damaged, contradict themselves or are too new."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pyarrow as pa
import pytest

from lowtide_snapshots import JobRecord
from lowtide_snapshots.errors import FormatTooNew, ManifestDamaged
from lowtide_snapshots.format.entries import parts_in
from lowtide_snapshots.format.manifest import FloorAt, FrontAt, LaneLast, Manifest, Part, shape_of, type_of

RECORD = JobRecord("shop", 25, 128, 4, "log", 1, ("orders=shop-orders",))
COUNT = pa.struct([("count", pa.int64()), ("pages", pa.list_(pa.int32()))])
INDEX = shape_of("index", "scan", pa.struct([("word", pa.string()), ("page", pa.int64())]), COUNT)
MANIFEST = Manifest(
    job="shop",
    id="000003-0007",
    name="before the sale",
    tick=17_000,
    incarnation=3,
    created="2026-01-31T12:00:00.000Z",
    base="000002-0041",
    record=RECORD,
    flow=(INDEX,),
    fronts=(FrontAt(0, "orders", "x7", 0, 41, 16_999), FrontAt(1, "orders", "x7", 1, 0, None)),
    floors=(FloorAt(1, 0, 16_000, False),),
    lasts=(LaneLast(2, "out", 0, None), LaneLast(2, "out", 1, "17000/0/40")),
    parts=(
        Part("index", "scan", 3, 17_000, "000003-0007", 2, 1000, "ab" * 32),
        Part("index", "scan", 4, 16_000, "000002-0041", 5, 1500, "cd" * 32),
        Part("index", "scan", 4, 17_000, "000003-0007", 1, 100, "ef" * 32, 16_500, (4, 7)),
    ),
)
LITERAL = {
    "base": "000002-0041",
    "created": "2026-01-31T12:00:00.000Z",
    "floors": [{"cap": False, "front": 1, "offset": 0, "tick": 16000}],
    "flow": [
        {"key": [["word", "string"], ["page", "int64"]], "kind": "scan", "state": INDEX.state, "vertex": "index"},
    ],
    "format": 6,
    "fronts": [
        {"label": 16999, "number": 0, "offset": 41, "partition": 0, "source": "orders", "topic_id": "x7"},
        {"label": None, "number": 1, "offset": 0, "partition": 1, "source": "orders", "topic_id": "x7"},
    ],
    "id": "000003-0007",
    "incarnation": 3,
    "job": "shop",
    "lasts": [
        {"lane": 0, "last": None, "level": 2, "sink": "out"},
        {"lane": 1, "last": "17000/0/40", "level": 2, "sink": "out"},
    ],
    "name": "before the sale",
    "parts": [
        {"bytes": 1000, "kind": "scan", "rows": 2, "sha256": "ab" * 32, "snapshot": "000003-0007", "tick": 17000}
        | {"unit": 3, "vertex": "index", "since": None, "units": []},
        {"bytes": 1500, "kind": "scan", "rows": 5, "sha256": "cd" * 32, "snapshot": "000002-0041", "tick": 16000}
        | {"unit": 4, "vertex": "index", "since": None, "units": []},
        {"bytes": 100, "kind": "scan", "rows": 1, "sha256": "ef" * 32, "snapshot": "000003-0007", "tick": 17000}
        | {"unit": 4, "vertex": "index", "since": 16500, "units": [4, 7]},
    ],
    "record": {
        "format": 1,
        "hash_version": 1,
        "job": "shop",
        "lanes": 4,
        "slack_ms": 25,
        "sources": ["orders=shop-orders"],
        "timestamps": "log",
        "units": 128,
    },
    "tick": 17000,
    "steps": "",
    "generation": 0,
}


def test_a_manifest_is_the_json_of_the_document() -> None:
    assert MANIFEST.to_json() == json.dumps(LITERAL, sort_keys=True)
    assert Manifest.from_json(json.dumps(LITERAL).encode(), "x") == MANIFEST


@pytest.mark.parametrize("number", range(1, 5))
def test_earlier_formats_have_no_deltas(number: int) -> None:
    parts = [{name: part[name] for name in part if name not in ("since", "units")} for part in LITERAL["parts"][:2]]  # type: ignore[index]
    earlier = LITERAL | {"format": number, "parts": parts}
    assert Manifest.from_json(json.dumps(earlier), "x").parts == MANIFEST.parts[:2]
    with pytest.raises(ManifestDamaged, match="since"):
        Manifest.from_json(json.dumps(LITERAL | {"format": number}), "x")


def test_format_5_has_no_parts_of_several_hash_units() -> None:
    parts = [{name: part[name] for name in part if name != "units"} for part in LITERAL["parts"]]  # type: ignore[attr-defined]
    alone = dataclasses.replace(MANIFEST.parts[2], units=())
    read = Manifest.from_json(json.dumps(LITERAL | {"format": 5, "parts": parts}), "x")
    assert read.parts == (*MANIFEST.parts[:2], alone)
    with pytest.raises(ManifestDamaged, match="units"):
        Manifest.from_json(json.dumps(LITERAL | {"format": 5}), "x")


def test_a_manifest_names_itself_and_its_parts() -> None:
    assert MANIFEST.path == "shop/manifests/000000000425000-000003-0007.json"
    assert [part.name("shop", 25) for part in MANIFEST.parts] == [
        "shop/parts/index/00003/000000000425000-000003-0007.parquet",
        "shop/parts/index/00004/000000000400000-000002-0041.parquet",
        "shop/parts/index/00004/000000000425000-000003-0007.parquet",
    ]
    assert (MANIFEST.rows, MANIFEST.bytes, MANIFEST.min_time_ms) == (8, 2600, 425_000)
    chains = MANIFEST.by_unit()
    assert chains == {
        ("index", 3): MANIFEST.parts[:1],
        ("index", 4): MANIFEST.parts[1:],
        ("index", 7): MANIFEST.parts[2:],
    }
    assert parts_in(chains) == (MANIFEST.parts[1], MANIFEST.parts[0], MANIFEST.parts[2])
    del chains["index", 4]
    assert parts_in(chains)[-1].units == (7,), "it keeps the name of unit 4"


def test_a_shape_keeps_the_type_of_the_state() -> None:
    assert type_of(INDEX) == COUNT
    deep = pa.map_(pa.string(), pa.struct([pa.field("at", pa.timestamp("us", "UTC"), nullable=False)]))
    assert type_of(shape_of("x", "broadcast", None, deep)) == deep
    with pytest.raises(ManifestDamaged, match="index"):
        type_of(dataclasses.replace(INDEX, state="bm90aGluZw=="))


def _changed(path: tuple[Any, ...], value: Any) -> str:
    values = json.loads(json.dumps(LITERAL))
    inside = values
    for step in path[:-1]:
        inside = inside[step]
    if value is KeyError:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return json.dumps(values)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("tick",), KeyError),
        (("more",), 1),
        (("format",), KeyError),
        (("format",), 0),
        (("format",), True),
        (("tick",), "17000"),
        (("tick",), True),
        (("tick",), 1.5),
        (("tick",), -1),
        (("tick",), 10**15),
        (("name",), 1),
        (("id",), None),
        (("id",), "000004-0007"),
        (("id",), "x"),
        (("job",), "another"),
        (("created",), "yesterday"),
        (("fronts",), {}),
        (("fronts", 0, "label"), "x"),
        (("fronts", 0, "offset"), None),
        (("floors", 0, "cap"), 0),
        (("flow", 0, "key"), [["word"]]),
        (("flow", 0, "kind"), "counter"),
        (("flow",), []),
        (("parts", 0), "x"),
        (("parts", 0, "unit"), 4),
        (("parts", 0, "since"), KeyError),
        (("parts", 0, "since"), "16500"),
        (("parts", 2, "since"), None),
        (("parts", 2, "since"), 17_001),
        (("parts", 2, "tick"), 16_000),
        (("parts", 0, "units"), [3, 7]),
        (("parts", 2, "units"), [7, 4]),
        (("parts", 2, "units"), [4, 4]),
        (("parts", 2, "units"), [3, 4]),
        (("parts", 2, "units"), [4, 40_000]),
        (("parts", 2, "units"), ["4"]),
        (("parts", 2, "units"), KeyError),
        (("parts", 0, "unit"), -1),
        (("parts", 0, "kind"), "last"),
        (("parts", 0, "vertex"), "totals"),
        (("parts", 0, "tick"), 17_001),
        (("parts", 0, "sha256"), "AB" * 32),
        (("parts", 0, "rows"), -1),
        (("parts", 0, "snapshot"), "../x"),
        (("record", "units"), 0),
        (("record",), None),
    ],
    ids=str,
)
def test_a_manifest_that_says_something_impossible_is_damaged(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(ManifestDamaged) as raised:
        Manifest.from_json(_changed(path, value), "store, shop/manifests/x.json")
    assert raised.value.where == "store, shop/manifests/x.json"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', b"\xff\xfe", "1", '{"format": 1}'])
def test_what_is_no_manifest_is_damaged(text: str | bytes) -> None:
    with pytest.raises(ManifestDamaged):
        Manifest.from_json(text, "x")


def test_a_manifest_that_is_cut_off_anywhere_is_damaged() -> None:
    text = MANIFEST.to_json()
    for length in range(len(text)):
        with pytest.raises(ManifestDamaged):
            Manifest.from_json(text[:length], "x")


def test_a_newer_format_is_refused_as_such_whatever_else_it_says() -> None:
    with pytest.raises(FormatTooNew, match="format 7; this version of Lowtide reads up to 6"):
        Manifest.from_json('{"format": 7, "all": "new"}', "x")
    with pytest.raises(FormatTooNew, match="record has format 9"):
        Manifest.from_json(_changed(("record", "format"), 9), "x")


def test_one_part_for_each_unit() -> None:

    doubled = dataclasses.replace(MANIFEST, parts=(*MANIFEST.parts, MANIFEST.parts[0]))
    with pytest.raises(ManifestDamaged, match="two parts for one unit"):
        Manifest.from_json(doubled.to_json(), "x")
