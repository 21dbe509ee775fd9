"""Errors of the store and of ZooKeeper at the start of a life, turned into the program's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowtide.errors import AlreadyRunning, FlowError, LifeEnded, LowtideError, ServiceUnavailable, SnapshotDamaged
from lowtide_snapshots.errors import (
    Fenced,
    LeaseTaken,
    NoGoodCommit,
    NoSuchCommit,
    RecordDiffers,
    SnapshotsError,
    SubmissionTaken,
    ZooKeeperUnavailable,
)
from lowtide_snapshots.stores.errors import StoreFull, StoreRefused, StoreUnavailable

__all__ = ["as_ours"]

_AWAY = (ZooKeeperUnavailable, StoreUnavailable, StoreRefused, StoreFull)


@contextmanager
def as_ours() -> Iterator[None]:
    """Raise what the job's place in ZooKeeper refuses as one of our own errors."""
    try:
        yield
    except SnapshotsError as error:
        kind: type[LowtideError] = LifeEnded
        if isinstance(error, LeaseTaken | SubmissionTaken):
            kind = AlreadyRunning
        elif isinstance(error, RecordDiffers | NoSuchCommit):
            kind = FlowError
        elif isinstance(error, NoGoodCommit):
            kind = SnapshotDamaged
        elif isinstance(error, _AWAY) and not isinstance(error, Fenced):
            kind = ServiceUnavailable
        raise kind(error.what, where=error.where, way_out=error.way_out) from error
