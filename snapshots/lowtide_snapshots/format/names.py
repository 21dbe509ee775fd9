"""Names of a snapshot's objects below the root of a store; defined in `snapshots/README.md`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowtide_snapshots.errors import PartRefused, RecordRefused
from lowtide_snapshots.job.paths import name_of, node_name
from lowtide_snapshots.keys import MAX_UNITS

MOST_MS = 10**15 - 1
_ID = re.compile(r"([0-9]{6,})-([0-9]{4,})")
_MANIFEST = re.compile(rf"([^/]+)/manifests/([0-9]{{15}})-({_ID.pattern})\.json")
_PART = re.compile(rf"([^/]+)/parts/([^/]+)/([0-9]{{5}})/([0-9]{{15}})-({_ID.pattern})\.parquet")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The parsed name of an object; `vertex` and `unit` are None for a manifest.

    Attributes:
        min_time_ms: the T of the snapshot that wrote it, in milliseconds.
        snapshot: that snapshot's id.
    """

    job: str
    vertex: str | None
    unit: int | None
    min_time_ms: int
    snapshot: str


def snapshot_id(incarnation: int, number: int) -> str:
    """The id of the `number`th snapshot of a life, e.g. `000003-0007`."""
    if incarnation < 1 or number < 0:
        raise PartRefused(
            f"incarnation {incarnation}, number {number}", where="a snapshot's id", way_out="count lives from 1"
        )
    return f"{incarnation:06d}-{number:04d}"


def incarnation_of(snapshot: str) -> int:
    """The life in which a snapshot was taken.

    Raises:
        PartRefused: it is not a snapshot's id.
    """
    found = _ID.fullmatch(snapshot)
    if not found:
        raise PartRefused(f"{snapshot!r} is not a snapshot's id", way_out="give one like 000003-0007")
    return int(found[1])


def part_name(job: str, vertex: str, unit: int, min_time_ms: int, snapshot: str) -> str:
    """The name of a part.

    Raises:
        PartRefused: a unit, time or id is out of its bounds, or a name is empty or no text of Unicode.
    """
    if not 0 <= unit < MAX_UNITS:
        raise PartRefused(f"hash unit {unit}", where=f"vertex {vertex!r}", way_out=f"give 0 to {MAX_UNITS - 1}")
    return f"{_encoded(job)}/parts/{_encoded(vertex)}/{unit:05d}/{_stem(min_time_ms, snapshot)}.parquet"


def manifest_name(job: str, min_time_ms: int, snapshot: str) -> str:
    """The name of a manifest; errors as of `part_name`."""
    return f"{_encoded(job)}/manifests/{_stem(min_time_ms, snapshot)}.json"


def parse_name(name: str) -> ObjectName | None:
    """Parse an object's name; None if it is neither a part's nor a manifest's."""
    if found := _PART.fullmatch(name):
        return ObjectName(name_of(found[1]), name_of(found[2]), int(found[3]), int(found[4]), found[5])
    if found := _MANIFEST.fullmatch(name):
        return ObjectName(name_of(found[1]), None, None, int(found[2]), found[3])
    return None


def _encoded(name: str) -> str:
    try:
        return node_name(name)
    except RecordRefused as error:
        raise PartRefused(error.what, where="a store", way_out=error.way_out) from error


def _stem(min_time_ms: int, snapshot: str) -> str:
    incarnation_of(snapshot)
    if not 0 <= min_time_ms <= MOST_MS:
        raise PartRefused(
            f"a min time of {min_time_ms} ms", where=f"snapshot {snapshot}", way_out=f"give 0 to {MOST_MS}"
        )
    return f"{min_time_ms:015d}-{snapshot}"
