"""What the snapshots package refuses: one base, one class per thing the caller can do."""

from __future__ import annotations

__all__ = ["KeyRefused", "SnapshotsError"]


class SnapshotsError(Exception):
    """Base of all errors of this package."""


class KeyRefused(SnapshotsError, ValueError):
    """Choose another key: a value of this type, or of this size, has no place in the key encoding."""
