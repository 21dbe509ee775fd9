"""The moments that a clock strikes: the multiples of a duration, counted from 1970 or on the clocks of a zone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache

from lowtide.flow.time.moments import micros, micros_of, moment, said_duration
from lowtide.flow.time.zones import first_shown

DAY = timedelta(days=1)
EPOCH_DAY = date(1970, 1, 1).toordinal()
LAST_US = 253_402_300_799_000_000
"""The last second of a `datetime`: no clock strikes later."""


@dataclass(frozen=True, slots=True)
class Every:
    """The interval at which a clock strikes.

    Attributes:
        duration: The time from one moment to the next.
        tz: The zone whose clocks show a multiple of it, a part of a day or whole days; None for UTC.
    """

    duration: timedelta
    tz: str | None = None

    def after(self, at: int) -> int | None:
        """Return the first moment after another one, in microseconds since 1970; None after the year 9999."""
        found = _finder(self)(at)
        return None if found is None or found > LAST_US else found

    def __str__(self) -> str:
        return f"every {said_duration(self.duration)}{f' in {self.tz}' if self.tz else ''}"


@lru_cache(64)
def _finder(every: Every) -> Callable[[int], int | None]:
    if every.tz is not None:
        return _in_zone(every.duration, every.tz)
    size = micros(every.duration)
    return lambda at: at - at % size + size


def _in_zone(duration: timedelta, tz: str) -> Callable[[int], int | None]:
    """Find moments by a zone's clocks: a time shown twice counts twice, a skipped one at the moment of the skip.

    Midnights differ: of one shown twice only the first counts, as one day begins there.
    """
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(tz)
    days = max(1, duration // DAY)
    times = [place * duration for place in range(max(1, DAY // duration))]

    @lru_cache(64)
    def struck(ordinal: int) -> list[int]:
        midnight = datetime.fromordinal(ordinal)
        found = set()
        for time in times:
            shown = midnight + time
            first = first_shown(zone, shown)
            again = micros_of(shown.replace(tzinfo=zone, fold=1))
            found.add(first)
            if time and again > first:
                found.add(again)
        return sorted(found)

    def after(at: int) -> int | None:
        try:
            ordinal = moment(at).astimezone(zone).toordinal()
            ordinal -= (ordinal - EPOCH_DAY) % days
            while True:
                for each in struck(ordinal):
                    if each > at:
                        return each
                ordinal += days
        except (OverflowError, ValueError):
            return None

    return after
