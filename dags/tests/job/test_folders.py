"""Folders of a sink of files: which log times each has."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lowtide_airflow.job.folders import Folders


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("unit", "since", "until", "ends"),
    [
        ("minute", "2026-02-28 23:58:30", "2026-03-01 00:00:00", ["2026-02-28 23:59", "2026-03-01 00:00"]),
        ("hour", "2026-02-28 23:00:00", "2026-03-01 01:59:59", ["2026-03-01 00:00", "2026-03-01 01:00"]),
        ("day", "2026-02-28 12:00:00", "2026-03-02 00:00:00", ["2026-03-01", "2026-03-02"]),
        ("month", "2026-01-31 12:00:00", "2026-03-31 00:00:00", ["2026-02-01", "2026-03-01"]),
        ("year", "2027-12-31 23:59:59", "2029-12-31 23:59:59", ["2028-01-01", "2029-01-01"]),
        ("day", "2026-03-01 00:00:00", "2026-03-01 23:59:59", []),
    ],
)
def test_each_folder_that_ends_comes_once(unit: str, since: str, until: str, ends: list[str]) -> None:
    folders = Folders("/lake/{tick:%Y-%m-%d %H:%M}/", unit, "*", "done")
    found = list(folders.complete(at(since), at(until)))
    assert [end for _, end in found] == [at(each) for each in ends]
    assert [begin for begin, _ in found] == [folders.first(at(since)), *(end for _, end in found)][: len(found)]


def test_readers_find_a_folder() -> None:
    folders = Folders("s3://lake/dt={tick:%Y-%m-%d}/hour={tick:%H}/", "hour", "country=*/a-*", "_lowtide/a.done.json")
    assert folders.found(at("2026-11-26 13:00")) == {
        "folder": "s3://lake/dt=2026-11-26/hour=13/",
        "files": "s3://lake/dt=2026-11-26/hour=13/country=*/a-*",
        "done": "s3://lake/dt=2026-11-26/hour=13/_lowtide/a.done.json",
    }
