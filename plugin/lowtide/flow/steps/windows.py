"""Windows of time, and the search for those that a moment lies in. Pure values; nothing here keeps state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from lowtide.flow.time.moments import DAY_US, FIRST_US, LAST_US, ZERO, micros, moment, said_duration
from lowtide.flow.time.zones import first_shown

Span = tuple[int, int]
"""Start and end of a window in microseconds since 1970; the end is not part of it."""

CalendarUnit = Literal["day", "week", "month"]

CYCLE_US = 146_097 * DAY_US
"""400 years, after which all days and weeks repeat."""
EDGE_US = 40 * DAY_US
"""Nearer to the range of a `datetime` a month, or a week, may reach beyond it."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time of one key: `start` belongs to it, `end` does not.

    Example:
        >>> window = lt.Window(("ada",), noon, noon + lt.hours(1))
        >>> window.end - window.start
        datetime.timedelta(seconds=3600)
    """

    key: tuple[Any, ...]
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, one after the other."""

    size: timedelta
    offset: timedelta = ZERO

    def __str__(self) -> str:
        return f"tumbling({said_duration(self.size)}{_offset(self.offset)})"


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size that overlap."""

    size: timedelta
    every: timedelta
    offset: timedelta = ZERO

    def __str__(self) -> str:
        return f"sliding({said_duration(self.size)}, every={said_duration(self.every)}{_offset(self.offset)})"


@dataclass(frozen=True, slots=True)
class Session:
    """Windows of activity."""

    gap: timedelta

    def __str__(self) -> str:
        return f"session({said_duration(self.gap)})"


@dataclass(frozen=True, slots=True)
class Calendar:
    """Days, weeks or months of a time zone."""

    unit: CalendarUnit
    tz: str

    def __str__(self) -> str:
        return f"calendar({self.unit}, {self.tz})"


Windows = Tumbling | Sliding | Session | Calendar


def longest_us(windows: Tumbling | Sliding | Calendar) -> int:
    """Return a length that no window exceeds."""
    return micros(timedelta(days=32) if isinstance(windows, Calendar) else windows.size)


def is_sayable(span: Span) -> bool:
    """Return whether both bounds are in the years 1 to 9999, so that a `Window` can hold them."""
    return span[0] >= FIRST_US and span[1] <= LAST_US


def spans_of(windows: Tumbling | Sliding | Calendar) -> Callable[[int], Sequence[Span]]:
    """Return a function that gives the windows of a moment, in the order of their starts; the same tuples each time.

    Every moment of the years 1 to 9999 has some; their bounds may lie beyond.
    """
    if isinstance(windows, Tumbling):
        found = _tumbling(micros(windows.size), micros(windows.offset))
    elif isinstance(windows, Sliding):
        found = _sliding(micros(windows.size), micros(windows.every), micros(windows.offset))
    else:
        found = _calendar(windows)

    def spans(at: int) -> Sequence[Span]:
        given = found(at)
        # The newest one has begun, and the oldest one goes on.
        assert given[-1][0] <= at < given[0][1], f"{moment(at)} is not in its windows of {windows}"
        return given

    return spans


def _tumbling(size: int, offset: int) -> Callable[[int], Sequence[Span]]:
    @lru_cache(1_024)
    def found(start: int) -> tuple[Span]:
        return ((start, start + size),)

    return lambda at: found(at - (at - offset) % size)


def _sliding(size: int, every: int, offset: int) -> Callable[[int], Sequence[Span]]:
    @lru_cache(1_024)
    def single(start: int) -> Span:
        return start, start + size

    @lru_cache(1_024)
    def found(last: int, whole: bool) -> tuple[Span, ...]:
        count = -(-size // every) - (not whole)
        return tuple(single(last - number * every) for number in range(count - 1, -1, -1))

    rest = (size - 1) % every
    """The distance from the newest start within which a moment still lies in the oldest window."""

    def spans(at: int) -> tuple[Span, ...]:
        beyond = (at - offset) % every
        return found(at - beyond, beyond <= rest)

    return spans


def _calendar(windows: Calendar) -> Callable[[int], Sequence[Span]]:
    from zoneinfo import ZoneInfo

    zone, unit = ZoneInfo(windows.tz), windows.unit

    def next_one(first: datetime) -> datetime:
        if unit == "month":
            return (first + timedelta(days=32)).replace(day=1)
        return first + timedelta(days=7 if unit == "week" else 1)

    @lru_cache(1_024)
    def found(first: datetime) -> tuple[Span]:
        return ((first_shown(zone, first), first_shown(zone, next_one(first))),)

    def spans(at: int) -> tuple[Span]:
        if not FIRST_US + EDGE_US <= at <= LAST_US - EDGE_US:
            return near_the_edge(at)
        local = moment(at).astimezone(zone)
        first = datetime(local.year, local.month, 1 if unit == "month" else local.day)
        if unit == "week":
            first -= timedelta(days=first.weekday())
        ((_, end),) = given = found(first)
        while at >= end:
            # Clocks put back over midnight show the day before once more: the new day has begun all the same.
            first = next_one(first)
            ((_, end),) = given = found(first)
        return given

    def near_the_edge(at: int) -> tuple[Span]:
        by = CYCLE_US if at < 0 else -CYCLE_US
        ((start, end),) = spans(at + by)
        return ((start - by, end - by),)

    return spans


def _offset(offset: timedelta) -> str:
    return f", offset={said_duration(offset)}" if offset else ""
