import dataclasses
import json
from typing import Any

import pytest

from lowtide_snapshots.errors import RecordDamaged, RecordDiffers, RecordRefused, RecordTooNew
from lowtide_snapshots.job.record import JobRecord

RECORD = JobRecord("index", 2, 128, 4, "log", 1, ("documents=docs", "words=w"))
FORMAT_1 = (
    '{"format": 1, "hash_version": 1, "job": "index", "lanes": 4, "slack_ms": 2, '
    '"sources": ["documents=docs", "words=w"], "timestamps": "log", "units": 128}'
)
GROWN = dataclasses.replace(RECORD, lanes=32, grown=(4, 8))
FORMAT_2 = (
    '{"format": 2, "grown": [4, 8], "hash_version": 1, "job": "index", "lanes": 32, "slack_ms": 2, '
    '"sources": ["documents=docs", "words=w"], "timestamps": "log", "units": 128}'
)
OTHERS: list[tuple[str, Any, str, str]] = [
    ("job", "other", "'index'", "'other'"),
    ("slack_ms", 5, "2", "5"),
    ("units", 64, "128", "64"),
    ("lanes", 8, "4", "8"),
    ("timestamps", "create", "'log'", "'create'"),
    ("hash_version", 2, "1", "2"),
    ("grown", (2,), "none", "2"),
]


def test_format_1_stays_as_it_is() -> None:
    assert RECORD.to_json() == FORMAT_1
    assert JobRecord.from_json(FORMAT_1) == RECORD
    assert JobRecord.from_json(FORMAT_1.encode()) == RECORD


def test_a_job_that_has_grown_is_no_record_for_earlier_versions() -> None:
    """They would take a lane for the partition of its number."""
    assert GROWN.to_json() == FORMAT_2
    assert JobRecord.from_json(FORMAT_2) == GROWN
    assert (RECORD.lane_counts, GROWN.lane_counts) == ((4,), (4, 8, 32))
    with pytest.raises(RecordDiffers) as raised:
        GROWN.check(RECORD)
    assert raised.value.fields == ("lanes",), "what it had before is nobody's setting"


def test_every_field_of_the_record_is_held_against_what_is_asked() -> None:
    assert {name for name, *_ in OTHERS} | {"sources"} == {field.name for field in dataclasses.fields(JobRecord)}
    RECORD.check(RECORD)


@pytest.mark.parametrize(("name", "value", "frozen", "asked"), OTHERS, ids=[name for name, *_ in OTHERS])
def test_a_field_that_differs_is_named_with_both_values_and_the_way_out(
    name: str, value: Any, frozen: str, asked: str
) -> None:
    with pytest.raises(RecordDiffers) as raised:
        RECORD.check(dataclasses.replace(RECORD, **{name: value}))
    assert raised.value.fields == (name,)
    assert f"{name} was {frozen}, now {asked}" in str(raised.value)
    setting = {"slack_ms": "job.slack_ms", "units": "exchange.units", "lanes": "job.lanes"}.get(name, name)
    assert f"what to do: set {setting} to {frozen} again, or give the job another name" in str(raised.value)


def test_all_that_differs_is_said_at_once() -> None:
    with pytest.raises(RecordDiffers) as raised:
        RECORD.check(dataclasses.replace(RECORD, lanes=8, slack_ms=5))
    assert raised.value.fields == ("slack_ms", "lanes")


def test_sources_may_be_added_and_none_may_go() -> None:
    RECORD.check(dataclasses.replace(RECORD, sources=("words=w", "documents=docs", "a=new")))
    for fewer in (("documents=docs",), ("documents=docs", "words=other"), ("documents=docs", "renamed=w")):
        with pytest.raises(RecordDiffers, match="job 'index' has read words=w, but the flow no longer does") as raised:
            RECORD.check(dataclasses.replace(RECORD, sources=fewer))
        assert raised.value.fields == ("sources",)
        assert "keep the source with its name and topic and drop its records" in str(raised.value)


def test_the_order_in_which_sources_are_named_does_not_matter() -> None:
    RECORD.check(dataclasses.replace(RECORD, sources=("words=w", "documents=docs")))


def test_a_record_of_a_newer_version_is_refused_as_such() -> None:
    with pytest.raises(RecordTooNew, match=r"(?s)format 3.*up to 2.*newer"):
        JobRecord.from_json('{"format": 3, "what": "nobody knows yet"}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        FORMAT_1.replace('"format": 1', '"format": "1"'),
        FORMAT_1.replace('"lanes": 4, ', ""),
        FORMAT_1.replace('"lanes"', '"slices"'),
        FORMAT_1.replace('"slack_ms": 2', '"slack_ms": "2"'),
        FORMAT_1.replace('"timestamps": "log"', '"timestamps": null'),
        FORMAT_1.replace('["documents=docs", "words=w"]', '"ab"'),
        FORMAT_1[:40],
        FORMAT_1.replace('"hash', '"grown": [2], "hash'),
        FORMAT_1.replace('"format": 1', '"format": 2'),
        FORMAT_2.replace("[4, 8]", "[]"),
        FORMAT_2.replace("[4, 8]", "[8, 4]"),
        FORMAT_2.replace("[4, 8]", "[4, 6]"),
        FORMAT_2.replace("[4, 8]", '["4"]'),
        FORMAT_2.replace("[4, 8]", "4"),
    ],
)
def test_what_is_no_record_is_damaged(text: str) -> None:
    with pytest.raises(RecordDamaged, match="restore it"):
        JobRecord.from_json(text)


@pytest.mark.parametrize(("name", "value"), [("slack_ms", 0), ("lanes", 1.5), ("units", True), ("job", "")])
def test_what_cannot_be_frozen_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RecordRefused, match=name):
        JobRecord(**json.loads(FORMAT_1.replace('"format": 1, ', "")) | {name: value})


def test_each_hash_unit_has_one_lane_and_a_lane_is_divided_among_those_of_a_multiple() -> None:
    for lanes in (1, 3, 4, 12):
        record = dataclasses.replace(RECORD, lanes=lanes, units=128)
        assert [unit for lane in range(lanes) for unit in record.units_of_lane(lane)] == list(range(128))
        assert all(unit * lanes // 128 == lane for lane in range(lanes) for unit in record.units_of_lane(lane))
        finer = dataclasses.replace(record, lanes=2 * lanes)
        for lane in range(lanes):
            parts = [finer.units_of_lane(2 * lane), finer.units_of_lane(2 * lane + 1)]
            assert [*parts[0], *parts[1]] == list(record.units_of_lane(lane))
