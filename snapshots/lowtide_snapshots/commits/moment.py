"""Moments as people read and write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


def ms_of(at: str) -> int:
    """Return a moment in ms since 1970, cut down; ISO text, in UTC unless it names a zone (errors: ValueError)."""
    found = datetime.fromisoformat(at)
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _ORIGIN) // timedelta(milliseconds=1)


def iso_of(ms: int) -> str:
    """Return ms since 1970 as ISO text in UTC; beyond the year 9999 as the number itself."""
    try:
        return (_ORIGIN + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"
    except OverflowError:
        return f"{ms} ms"
