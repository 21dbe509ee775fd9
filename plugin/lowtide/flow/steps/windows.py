"""Windows of time, and the search for those that a moment lies in. Pure values; nothing here keeps state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from lowtide.flow.time.moments import DAY_US, FIRST_US, LAST_US, ZERO, micros, moment, said_duration, tick_due
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


@dataclass(frozen=True, slots=True)
class Until:
    """Windows of the ticks whose records have their last results at one tick, that included; they end after it.

    Attributes:
        last: What of their records comes last.
        slack: The length of a tick.
    """

    last: Delay
    slack: timedelta

    @property
    def tz(self) -> str:
        """The zone by whose days they go; empty for none."""
        return "".join(zones_of(self.last))

    def __str__(self) -> str:
        return f"{said_duration(self.slack)} after {self.last}"


Windows = Tumbling | Sliding | Session | Calendar
Shared = Tumbling | Sliding | Calendar | Until
"""Windows whose bounds do not hang on records."""


@dataclass(frozen=True, slots=True)
class Close:
    """The results of windows by log time: each has the tick at which its window closes.

    Attributes:
        windows: The windows.
        of: What goes into them last, of the records of a tick; None for these themselves.
    """

    windows: Shared
    of: Delay | None = None

    def __str__(self) -> str:
        return f"{self.windows}{_of(self.of)}"


@dataclass(frozen=True, slots=True)
class Reach:
    """The pairs of a join by log time: the last one has the tick of the last partner.

    Attributes:
        duration: How long after a record the last partner may come.
        alone: Whether a record comes out that has found none: a tick later.
        of: As of `Close`.
    """

    duration: timedelta
    alone: bool
    of: Delay | None = None

    def __str__(self) -> str:
        return f"join({said_duration(self.duration)}{', alone' * self.alone}){_of(self.of)}"


@dataclass(frozen=True, slots=True)
class Latest:
    """The last of several ways."""

    ways: tuple[Delay, ...]

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.ways))})"


Delay = Close | Reach | Latest
"""What comes last of the records of a tick; None beside it if that has their tick."""


def _of(delay: Delay | None) -> str:
    return "" if delay is None else f" of {delay}"


def latest(ways: Iterable[Delay | None]) -> Delay | None:
    """Return what comes last on any of several ways."""
    different = tuple(dict.fromkeys(way for way in ways if way is not None))  # Nothing comes before its tick.
    return Latest(different) if len(different) > 1 else different[0] if different else None


def zones_of(delay: Delay | None) -> list[str]:
    """Return the zones by whose days a delay goes, each once."""
    if isinstance(delay, Latest):
        found = [zone for way in delay.ways for zone in zones_of(way)]
    elif isinstance(delay, Close):
        windows = delay.windows
        own = zones_of(windows.last) if isinstance(windows, Until) else [getattr(windows, "tz", "")]
        found = [*zones_of(delay.of), *own]
    else:
        found = [] if delay is None else zones_of(delay.of)
    return list(dict.fromkeys(filter(None, found)))


def last_tick(delay: Delay | None, slack_us: int) -> Callable[[int], int]:
    """Return a function that gives for a tick the last one at which something comes of its records; it never falls."""
    if delay is None:
        return lambda tick: tick
    if isinstance(delay, Latest):
        ways = [last_tick(way, slack_us) for way in delay.ways]
        return lambda tick: max([way(tick) for way in ways])
    before = last_tick(delay.of, slack_us)
    if isinstance(delay, Reach):
        reach, alone = micros(delay.duration), delay.alone
        return lambda tick: (before(tick) * slack_us + reach) // slack_us + alone
    spans = spans_of(delay.windows)
    return lambda tick: tick_due(spans(before(tick) * slack_us)[-1][1], slack_us)


def longest_us(windows: Shared) -> int:
    """Return a length that no window exceeds."""
    if isinstance(windows, Until):
        slack_us = micros(windows.slack)
        return _longest(windows.last, slack_us) + 2 * slack_us
    return micros(timedelta(days=32) if isinstance(windows, Calendar) else windows.size)


def _longest(delay: Delay | None, slack_us: int) -> int:
    """Return a time within which what comes last of a tick's records has come: no less than that."""
    if delay is None:
        return 0
    if isinstance(delay, Latest):
        return max(_longest(way, slack_us) for way in delay.ways)
    own = micros(delay.duration) if isinstance(delay, Reach) else longest_us(delay.windows)
    return _longest(delay.of, slack_us) + own + slack_us


def is_sayable(span: Span) -> bool:
    """Return whether both bounds are in the years 1 to 9999, so that a `Window` can hold them."""
    return span[0] >= FIRST_US and span[1] <= LAST_US


def spans_of(windows: Shared) -> Callable[[int], Sequence[Span]]:
    """Return a function that gives the windows of a moment, in the order of their starts; the same tuples each time.

    Every moment of the years 1 to 9999 has some; their bounds may lie beyond.
    """
    if isinstance(windows, Tumbling):
        found = _tumbling(micros(windows.size), micros(windows.offset))
    elif isinstance(windows, Sliding):
        found = _sliding(micros(windows.size), micros(windows.every), micros(windows.offset))
    elif isinstance(windows, Until):
        found = _until(windows)
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


def _until(windows: Until) -> Callable[[int], Sequence[Span]]:
    slack_us, longest = micros(windows.slack), longest_us(windows)
    last = last_tick(windows.last, slack_us)

    @lru_cache(1_024)
    def found(tick: int) -> tuple[Span]:
        end = (last(tick) + 1) * slack_us
        return ((end - longest, end),)

    return lambda at: found(at // slack_us)


def _offset(offset: timedelta) -> str:
    return f", offset={said_duration(offset)}" if offset else ""
