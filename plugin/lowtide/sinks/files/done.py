"""`_lowtide/SINK.done.json` of a bucket: all of its files are there, and these are they.

Its bytes are the same, no matter who writes it. Files that this carrier has not put are read: they are few, as only
those of a carrier that ended within the bucket are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from lowtide_snapshots.stores import Store
from lowtide_snapshots.stores.errors import AlreadyThere

if TYPE_CHECKING:
    from lowtide.sinks.files.formats import FileFormat


class Fact(NamedTuple):
    """Size and digest of a file that is there."""

    rows: int
    bytes: int
    sha256: str


def done_name(folder: str, sink: str) -> str:
    """Return the name below the root, for a bucket's folder below the root."""
    return f"{folder}_lowtide/{sink}.done.json"


def files_in(store: Store, folder: str, sink: str, form: FileFormat[Any]) -> list[str]:
    """Return the names of a sink's files that are there (errors: as of `Store`)."""
    ours = re.compile(rf"(?:.*/)?{re.escape(sink)}-\d+-\d+-\d+\.{form.suffix}")
    return [each.name for each in store.names(folder) if ours.fullmatch(each.name)]


def write_done(
    store: Store, name: str, span: tuple[int, int], form: FileFormat[Any], files: Mapping[str, Fact | None]
) -> None:
    """Write it if it is not there (errors: as of `Store`).

    Args:
        store: The store.
        name: Its own name.
        span: The bucket's log times, in ms: the first, and that after it.
        form: The format of the files.
        files: All files of the bucket by name, with what is known of them.
    """
    if None in files.values() and any(each.name == name for each in store.names(name)):
        return
    folder, _, file = name.rpartition("_lowtide/")
    facts = {each: fact or _read(store, each, form) for each, fact in sorted(files.items())}
    content = {
        "sink": file.removesuffix(".done.json"),
        "from": _said(span[0]),
        "to": _said(span[1]),
        "rows": sum(fact.rows for fact in facts.values()),
        "bytes": sum(fact.bytes for fact in facts.values()),
        "files": [{"name": each.removeprefix(folder), **fact._asdict()} for each, fact in facts.items()],
    }
    # One that is there with other bytes was there before its files were deleted and written again.
    with suppress(AlreadyThere):
        store.put(name, json.dumps(content, indent=1).encode() + b"\n")


def _read(store: Store, name: str, form: FileFormat[Any]) -> Fact:
    data = store.get(name)
    return Fact(form.count(data), len(data), hashlib.sha256(data).hexdigest())


def _said(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
