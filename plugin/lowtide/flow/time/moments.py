"""Moments as whole microseconds since 1970, and the ticks that they fall into or are due at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = [
    "DAY_US",
    "FIRST_US",
    "LAST_US",
    "MICROSECOND",
    "ZERO",
    "instant_over",
    "micros",
    "micros_of",
    "moment",
    "said_duration",
    "span_over",
    "tick_due",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ZERO = timedelta(0)
DAY_US = 86_400_000_000


def micros_of(at: datetime) -> int:
    """Return a moment in microseconds since 1970."""
    since = at - EPOCH
    return since.days * DAY_US + since.seconds * 1_000_000 + since.microseconds


def micros(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return duration // MICROSECOND


def moment(at: int) -> datetime:
    """Invert `micros_of`; raises OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=at)


def tick_due(at: int, slack_us: int) -> int:
    """Return the first tick whose records are all stamped at or after a moment: the tick of what is due then."""
    return -(-at // slack_us)


# When something is over: all records of that tick come after it, except what clocks upstream bring there. An end is not
# part of its span, while a record's own moment is part of the record; so the two differ by a microsecond. The law of
# both: a record that is at most `wait` behind log time is never late.


def span_over(end: int, wait_us: int, slack_us: int) -> int:
    """Return the tick at which a span without its end is over: log time has reached `wait` after the end."""
    return tick_due(end + wait_us, slack_us)


def instant_over(at: int, wait_us: int, slack_us: int) -> int:
    """Return the tick at which the moment of a record is over: log time is more than `wait` past it."""
    return tick_due(at + wait_us + 1, slack_us)


FIRST_US, LAST_US = micros_of(datetime.min.replace(tzinfo=UTC)), micros_of(datetime.max.replace(tzinfo=UTC))
"""The range of a `datetime`, in microseconds since 1970: the years 1 to 9999."""

_UNITS = (("d", DAY_US), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000))


def said_duration(duration: timedelta) -> str:
    """Write a duration for people, in the largest unit that gives an integer: `90 s`, `1 h`."""
    whole = micros(duration)
    for unit, size in _UNITS:
        if whole and whole % size == 0:
            return f"{whole // size} {unit}"
    return f"{whole} us" if whole else "0 s"
