"""Snapshots of a count per word, sealed in a store as a coordinator would seal them, in ticks of 10 ms."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lowtide_snapshots.commits.log import Commit, CommitLog
from lowtide_snapshots.format.manifest import FrontAt, LaneLast, Manifest, Part, shape_of
from lowtide_snapshots.format.names import snapshot_id
from lowtide_snapshots.format.parts import PartHead, encode_part, sha256
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.stores import Store

SLACK_MS = 10
KEY = pa.struct([("word", pa.string())])


def record(job: str) -> JobRecord:
    """What such a job hangs on."""
    return JobRecord(job, SLACK_MS, 128, 2, "log", 1, ("documents=docs",))


def seal(store: Store, job: str, number: int, tick: int, *, base: Manifest | None = None, **said: Any) -> Manifest:
    """Seal a snapshot: unit 1 is rewritten, and unit 2 too if there is no base; `said` are fields of a manifest."""
    life = said.setdefault("incarnation", 1)
    identity = snapshot_id(life, number)
    kept = [part for part in base.parts if part.unit != 1] if base else [_part(store, job, tick, 2, identity)]
    fields: dict[str, Any] = {
        "job": job,
        "id": identity,
        "name": None,
        "tick": tick,
        "created": "2026-01-31T12:00:00.000Z",
        "base": base.id if base else None,
        "record": record(job),
        "flow": (shape_of("counts", "scan", KEY, pa.int64()),),
        "fronts": (FrontAt(0, "docs", "x", 0, tick * 2, tick - 1),),
        "floors": (),
        "lasts": (LaneLast(1, "out", 0, f"[{tick}, 0, 7, [], 1]"), LaneLast(1, "out", 1, None)),
        "parts": (_part(store, job, tick, 1, identity), *kept),
    }
    manifest = Manifest(**{**fields, **said})
    store.put(manifest.path, manifest.to_json().encode())
    return manifest


def commit(log: CommitLog, manifest: Manifest) -> Commit:
    """Commit a snapshot."""
    return log.commit(manifest, sha256(manifest.to_json().encode()))


def _part(store: Store, job: str, tick: int, unit: int, identity: str) -> Part:
    head = PartHead(job, "counts", "scan", unit, tick, SLACK_MS, identity)
    data = encode_part(head, pa.table({"key": pa.array([{"word": f"{unit}"}], KEY), "state": pa.array([tick])}))
    store.put(head.name, data)
    return Part("counts", "scan", unit, tick, identity, 1, len(data), sha256(data))
