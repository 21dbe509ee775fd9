"""Errors of the store and of ZooKeeper, turned into the command line's, with its exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowtide.errors import ConfError, FlowError, LowtideError, ServiceUnavailable, SnapshotDamaged, SnapshotFailed
from lowtide_snapshots.errors import (
    CommitRefused,
    EntryDiffers,
    Fenced,
    ManifestDamaged,
    NoGoodCommit,
    PartDamaged,
    RecordDiffers,
    SnapshotsError,
)
from lowtide_snapshots.stores.errors import AlreadyThere, NotThere, StoreDamaged

__all__ = ["plain_errors"]

_DAMAGED = (ManifestDamaged, NoGoodCommit, NotThere, PartDamaged, StoreDamaged)
_NOT_COMMITTED = (AlreadyThere, CommitRefused, EntryDiffers, Fenced)
_BY_CODE: dict[int, type[LowtideError]] = {2: ConfError, 4: ServiceUnavailable}


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise what the block's store and ZooKeeper refuse as one of our own errors."""
    try:
        yield
    except SnapshotsError as error:
        kind = _BY_CODE.get(error.exit_code, LowtideError)
        if isinstance(error, _DAMAGED):
            kind = SnapshotDamaged
        elif isinstance(error, _NOT_COMMITTED):
            kind = SnapshotFailed
        elif isinstance(error, RecordDiffers):
            kind = FlowError
        raise kind(error.what, where=error.where, way_out=error.way_out) from error
