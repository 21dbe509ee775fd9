"""Verifies a snapshot: every part is there, whole, and the one that the manifest means."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from lowtide_snapshots.errors import PartDamaged
from lowtide_snapshots.format.manifest import Manifest, Part
from lowtide_snapshots.format.parts import PartHead, decode_part, sha256
from lowtide_snapshots.stores import Store
from lowtide_snapshots.stores.errors import NotThere, StoreDamaged

THREADS = 8
"""Parts that are read at once: a store in the network answers many as quickly as one."""

OnProgress = Callable[[int, int], object]
"""Called with (done, of how many)."""


@dataclass(frozen=True, slots=True, order=True)
class Damage:
    """A part that cannot be loaded, by its name in the store, and why."""

    part: str
    why: str


def verify(store: Store, manifest: Manifest, progress: OnProgress, *, threads: int = THREADS) -> list[Damage]:
    """Read and check every part of a snapshot, in memory for as many parts as there are threads.

    Args:
        store: the parts' store.
        manifest: names them.
        progress: called before the first part and after each, on the caller's thread.
        threads: how many parts are read at once; with 1, on the caller's thread.

    Returns:
        Those that are damaged, by name; empty if the snapshot is good.

    Raises:
        StoreUnavailable, StoreRefused: nothing is known of the snapshot.
        FormatTooNew: a part was written by a newer Lowtide.
    """
    parts = manifest.parts
    damages: list[Damage] = []
    progress(0, len(parts))
    if threads == 1:
        for done, part in enumerate(parts, 1):
            damages += _damages(store, manifest, part)
            progress(done, len(parts))
        return sorted(damages)
    with ThreadPoolExecutor(min(threads, len(parts)) or 1, "verify") as pool:
        pending = [pool.submit(_damages, store, manifest, part) for part in parts]
        try:
            for done, each in enumerate(as_completed(pending), 1):
                damages += each.result()
                progress(done, len(parts))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return sorted(damages)


def _damages(store: Store, manifest: Manifest, part: Part) -> list[Damage]:
    name = part.name(manifest.job, manifest.record.slack_ms)
    try:
        why = _wrong(store.get(name), manifest, part, name)
    except NotThere:
        why = "it is missing"
    except (StoreDamaged, PartDamaged) as error:
        why = error.what
    return [Damage(name, why)] if why else []


def _wrong(data: bytes, manifest: Manifest, part: Part, name: str) -> str:
    """Return the damage of a part's bytes; empty if they are whole."""
    if len(data) != part.bytes:
        return f"it has {len(data)} bytes, expected {part.bytes}"
    found = sha256(data)
    if found != part.sha256:
        return f"its SHA-256 is {found}, expected {part.sha256}"
    head, table = decode_part(data, name)
    slack_ms = manifest.record.slack_ms
    meant = PartHead(manifest.job, part.vertex, part.kind, part.unit, part.tick, slack_ms, part.snapshot, part.since)
    if replace(head, units=()) != meant or bool(head.units) != bool(part.units) or not {*part.units} <= {*head.units}:
        return f"its head says {head}, expected {meant}"
    if table.num_rows != part.rows:
        return f"it has {table.num_rows} rows, expected {part.rows}"
    return ""
