"""A snapshot as ZooKeeper and the store know it: committed, sealed, or over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.format.manifest import Manifest

__all__ = ["KnownSnapshot", "Phase"]

Phase = Literal["committed", "sealed", "over"]


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot that is committed, or whose manifest is there.

    Attributes:
        id: its id.
        name: what somebody called it; None if nobody did.
        phase: "sealed" may still be committed; "over" cannot be any more, and goes with the next prune.
        min_time_ms: its T, ms since 1970.
        path: its manifest's name in the store.
        incarnation: the life that took it.
        commit: its commit; None if it has none.
        manifest: None if it cannot be read.
        why: why it cannot be read; empty if it can.
    """

    id: str
    name: str | None
    phase: Phase
    min_time_ms: int
    path: str
    incarnation: int
    commit: Commit | None
    manifest: Manifest | None
    why: str

    def as_object(self) -> dict[str, Any]:
        """As plain values: what an operator hands on, and what a page shows."""
        manifest = self.manifest
        return {
            "id": self.id,
            "name": self.name,
            "phase": self.phase,
            "min_time_ms": self.min_time_ms,
            "manifest": self.path,
            "incarnation": self.incarnation,
            "committed": self.commit.at if self.commit else None,
            "created": manifest.created if manifest else None,
            "parts": len(manifest.parts) if manifest else None,
            "rows": manifest.rows if manifest else None,
            "bytes": manifest.bytes if manifest else None,
            "why": self.why,
        }
