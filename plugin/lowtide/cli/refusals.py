"""The fence in a command that writes: what was not committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowtide.errors import SnapshotFailed
from lowtide_snapshots.errors import EntryDiffers, Fenced


@contextmanager
def fence_fails_snapshot() -> Iterator[None]:
    """Raise `SnapshotFailed` where ZooKeeper fences the block off, or has something else in the place of its write."""
    try:
        yield
    except (EntryDiffers, Fenced) as error:
        raise SnapshotFailed(error.what, where=error.where, way_out=error.way_out) from error
