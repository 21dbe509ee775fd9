"""Values of a job's nodes: JSON objects, in UTF-8."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lowtide_snapshots.errors import EntryDiffers, RecordDamaged, RecordRefused


def to_bytes(value: Mapping[str, Any], where: str = "") -> bytes:
    """A JSON object's bytes, the same for equal ones.

    Raises:
        RecordRefused: there is something in it that JSON does not have.
    """
    try:
        return json.dumps(dict(value), sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise RecordRefused(f"cannot write it as JSON: {error}", where=where, way_out="write plain values") from error


def value_of(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in a node.

    Raises:
        RecordDamaged: there is none.
    """
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise damaged(f"it holds {data[:80]!r}, which is not a JSON object", path)
    return value


def whole(value: Mapping[str, Any], field: str, path: str) -> int:
    """A field that holds a whole number.

    Raises:
        RecordDamaged: it does not.
    """
    number = value.get(field)
    if type(number) is not int:
        raise damaged(f"{field!r} is {number!r}, which is not an integer", path)
    return number


def tick_in(data: bytes, path: str) -> int:
    """The tick that a node holds; errors as of `whole`."""
    return whole(value_of(data, path), "tick", path)


def number_of(entry: Mapping[str, Any]) -> int:
    """The number of an entry of the front register.

    Raises:
        RecordRefused: it has none.
    """
    number = entry.get("number")
    if type(number) is not int or number < 0:
        raise RecordRefused(
            f"an entry's number is {number!r}", where="the front register", way_out="give a number from 0"
        )
    return number


def must_be_same(path: str, found: bytes, asked: bytes) -> None:
    """Check that a write-once node has the content to be written.

    Raises:
        EntryDiffers: it says something else.
    """
    if value_of(found, path) != value_of(asked, path):
        raise EntryDiffers(
            f"a value that is written once would change from {found.decode()} to {asked.decode()}",
            where=path,
            way_out="if a topic was deleted and recreated, give the job another name; otherwise report it",
        )


def damaged(what: str, path: str) -> RecordDamaged:
    """The error of a node that does not hold what it should."""
    return RecordDamaged(f"cannot read a node: {what}", where=path, way_out="restore it from a backup of ZooKeeper")
