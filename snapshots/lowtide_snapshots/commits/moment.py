"""Moments as people write them, to choose a commit by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["ms_of"]

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


def ms_of(at: str) -> int:
    """Return a moment in ms since 1970, cut down; ISO text, in UTC unless it names a zone (errors: ValueError)."""
    found = datetime.fromisoformat(at)
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _ORIGIN) // timedelta(milliseconds=1)
