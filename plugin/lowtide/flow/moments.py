"""Moments as whole microseconds since 1970, and the ticks that they fall into or are due at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["MICROSECOND", "ZERO", "micros", "micros_of", "moment", "said_duration", "tick_due"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ZERO = timedelta(0)
_DAY_US = 86_400_000_000


def micros_of(at: datetime) -> int:
    """A moment, in microseconds since 1970."""
    since = at - EPOCH
    return since.days * _DAY_US + since.seconds * 1_000_000 + since.microseconds


def micros(duration: timedelta) -> int:
    """A duration in microseconds."""
    return duration // MICROSECOND


def moment(at: int) -> datetime:
    """The inverse of `micros_of`; raises OverflowError outside of the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=at)


def tick_due(at: int, slack_us: int) -> int:
    """The first tick all of whose records are stamped at or after a moment: what is due then is due at this tick."""
    return -(-at // slack_us)


_UNITS = (("d", _DAY_US), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000))


def said_duration(duration: timedelta) -> str:
    """A duration for people, in the largest unit of which it is a whole number: `90 s`, `1 h`."""
    whole = micros(duration)
    for unit, size in _UNITS:
        if whole and whole % size == 0:
            return f"{whole // size} {unit}"
    return f"{whole} us" if whole else "0 s"
