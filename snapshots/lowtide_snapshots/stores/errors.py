"""Errors of stores: one class per thing the caller can do about it."""

from __future__ import annotations

from lowtide_snapshots.errors import ServiceUnavailable, SnapshotDamaged, SnapshotFailed, SnapshotsError


class StoreUnavailable(SnapshotsError, ServiceUnavailable):
    """Mend the store or the way to it, then try again: it did not answer in time. What was to be put may be there."""


class StoreRefused(SnapshotsError, ServiceUnavailable):
    """Correct the setting, the credentials or the permissions: trying again changes nothing."""


class StoreFull(SnapshotsError, ServiceUnavailable):
    """Make room, or give the store another place: nothing was put."""


class StoreDamaged(SnapshotsError, SnapshotDamaged):
    """Do not trust what came: the bytes are not those that were put."""


class NotThere(SnapshotsError, SnapshotDamaged):
    """Ask for another object: there is none of this name."""


class AlreadyThere(SnapshotsError, SnapshotFailed):
    """Choose another name: there is an object of this name with other bytes, and none is ever changed."""


class NameRefused(SnapshotsError, ValueError):
    """Correct the name: objects are `/`-separated names below the root, none of them empty, `.` or `..`."""

    exit_code = 2
