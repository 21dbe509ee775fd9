"""Errors of stores: one class per thing the caller can do about it."""

from __future__ import annotations

from lowtide_snapshots.errors import SnapshotsError

__all__ = [
    "AlreadyThere",
    "NameRefused",
    "NotThere",
    "StoreDamaged",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
]


class StoreUnavailable(SnapshotsError):
    """Mend the store or the way to it, then try again: it did not answer in time. What was to be put may be there."""

    exit_code = 4


class StoreRefused(SnapshotsError):
    """Correct the setting, the credentials or the permissions: trying again changes nothing."""

    exit_code = 4


class StoreFull(SnapshotsError):
    """Make room, or give the store another place: nothing was put."""

    exit_code = 4


class StoreDamaged(SnapshotsError):
    """Do not trust what came: the bytes are not those that were put."""

    exit_code = 4


class NotThere(SnapshotsError):
    """Ask for another object: there is none of this name."""

    exit_code = 4


class AlreadyThere(SnapshotsError):
    """Choose another name: there is an object of this name with other bytes, and none is ever changed."""

    exit_code = 5


class NameRefused(SnapshotsError, ValueError):
    """Correct the name: objects are `/`-separated names below the root, none of them empty, `.` or `..`."""

    exit_code = 2
