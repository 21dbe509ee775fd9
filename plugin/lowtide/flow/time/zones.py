"""Moments at which a zone's clocks show a time, by this machine's tzdata: days begin at them, and laws change them."""

from __future__ import annotations

import hashlib
import struct
from datetime import datetime, timedelta, tzinfo
from functools import cache

from lowtide.flow.time.moments import micros_of, moment

FIRST_YEAR = 1970
YEARS = 100
DIGITS = 6
"""Hexadecimal digits of a year's mark: a difference between two machines escapes once in sixteen million."""


def first_shown(zone: tzinfo, time: datetime) -> int:
    """Return the first moment at which the clocks of a zone show a time, or a later one if they skip it.

    Args:
        zone: The zone.
        time: The time, without a zone; not within a day of the bounds of `datetime`.

    Returns:
        The moment, in microseconds since 1970.
    """
    first = micros_of(time.replace(tzinfo=zone))
    again = micros_of(time.replace(tzinfo=zone, fold=1))
    if first <= again:
        return first
    # Clocks skip it, after `again` and by `first`: find that moment by bisection.
    while again < first:
        middle = (again + first) // 2
        if moment(middle).astimezone(zone).replace(tzinfo=None) < time:
            again = middle + 1
        else:
            first = middle
    return first


@cache
def day_marks(tz: str) -> str:
    """Return `DIGITS` for each of `YEARS` years: a digest of when the year's days begin; O(days), then kept.

    Args:
        tz: The zone's name, which exists.
    """
    from zoneinfo import ZoneInfo

    zone, marks = ZoneInfo(tz), []
    for year in range(FIRST_YEAR, FIRST_YEAR + YEARS):
        first = datetime(year, 1, 1)
        days = (datetime(year + 1, 1, 1) - first).days
        begins = [first_shown(zone, first + timedelta(days=day)) for day in range(days)]
        marks.append(hashlib.sha256(struct.pack(f"<{days}q", *begins)).hexdigest()[:DIGITS])
    return "".join(marks)


def differ(was: str, now: str, at: int) -> int | None:
    """Return the first year, from a moment's own to that of a year later, whose days begin differently.

    Args:
        was: Marks of another machine.
        now: Those of this one.
        at: The moment, in microseconds since 1970.
    """
    first, last = moment(at).year, moment(at + timedelta(days=366) // timedelta(microseconds=1)).year
    for year in range(max(first, FIRST_YEAR), min(last, FIRST_YEAR + YEARS - 1) + 1):
        place = slice((year - FIRST_YEAR) * DIGITS, (year - FIRST_YEAR + 1) * DIGITS)
        if was[place] != now[place]:
            return year
    return None
