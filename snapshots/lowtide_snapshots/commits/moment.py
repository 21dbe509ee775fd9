"""Moments as people write them, to choose a commit by."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["ms_of"]


def ms_of(at: str) -> int:
    """Return a moment in ms since 1970; ISO text, in UTC unless it names a zone (errors: ValueError)."""
    found = datetime.fromisoformat(at)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
