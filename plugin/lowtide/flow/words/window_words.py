"""The words for windows of time; refuses arguments that do not fit."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from lowtide.errors import FlowError
from lowtide.flow.site import user_site
from lowtide.flow.steps.windows import Calendar, CalendarUnit, Session, Sliding, Tumbling
from lowtide.flow.time.durations import LIMIT
from lowtide.flow.time.moments import ZERO, said_duration

LIMIT_WINDOWS = 1_000
"""The number of windows that a record may lie in."""


def tumbling(size: timedelta, *, offset: timedelta = ZERO) -> Tumbling:
    """Make windows of one size, one after the other, aligned to 1970-01-01T00:00Z plus `offset`.

    Example:
        >>> minutes = clicks.key_by("user").window("minutes", lt.tumbling(lt.minutes(1)))
        >>> minutes.aggregate(Total, amount=lt.agg.count()).write("totals", to_totals)
        >>> flow.run_locally(clicks=two_clicks)["totals"]
        [Total(user='ada', amount=1), Total(user='ada', amount=1)]
    """
    return Tumbling(_duration_of("tumbling", "size", size), _offset_of("tumbling", offset))


def sliding(size: timedelta, every: timedelta, *, offset: timedelta = ZERO) -> Sliding:
    """Make windows of one size that overlap: one begins at each multiple of `every` ("hopping" elsewhere).

    Example:
        >>> hours = clicks.key_by("user").window("hours", lt.sliding(lt.hours(1), every=lt.minutes(30)))
        >>> hours.aggregate(Total, amount=lt.agg.count()).write("totals", to_totals)
        >>> flow.run_locally(clicks=two_clicks)["totals"]
        [Total(user='ada', amount=2), Total(user='ada', amount=2)]
    """
    _duration_of("sliding", "size", size)
    _duration_of("sliding", "every", every)
    if every > size:
        text = f"sliding windows of {said_duration(size)} every {said_duration(every)} leave gaps between them"
        raise FlowError(text, where=str(user_site()), way_out="make every= at most the size")
    if -(-size // every) > LIMIT_WINDOWS:
        text = f"a record would be in {-(-size // every)} windows, the limit is {LIMIT_WINDOWS}"
        raise FlowError(text, where=str(user_site()), way_out="use a larger every=, so that windows begin less often")
    return Sliding(size, every, _offset_of("sliding", offset))


def session(gap: timedelta) -> Session:
    """Make windows of activity: a record belongs to the window it is less than `gap` away from, and may merge two.

    Example:
        >>> visits = clicks.key_by("user").window("visits", lt.session(lt.minutes(30)))
        >>> visits.aggregate(Total, amount=lt.agg.count()).write("totals", to_totals)
        >>> flow.run_locally(clicks=two_clicks)["totals"]
        [Total(user='ada', amount=2)]
    """
    return Session(_duration_of("session", "gap", gap))


def calendar(unit: CalendarUnit, tz: str) -> Calendar:
    """Make windows of days, weeks from Monday, or months of a time zone; its days have 23, 24 or 25 hours.

    Example:
        >>> days = clicks.key_by("user").window("days", lt.calendar("day", "Europe/Berlin"))
        >>> days.aggregate(Total, amount=lt.agg.count()).write("totals", to_totals)
        >>> flow.run_locally(clicks=two_clicks)["totals"]
        [Total(user='ada', amount=2)]
    """
    from zoneinfo import ZoneInfo

    if unit not in get_args(CalendarUnit):
        what = f"calendar takes {', '.join(map(repr, get_args(CalendarUnit)))}, found {unit!r}"
        raise FlowError(what, where=str(user_site()))
    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, OSError):
        way_out = 'use a name of the IANA database, such as "Europe/Berlin" or "UTC"'
        raise FlowError(f"unknown time zone {tz!r}", where=str(user_site()), way_out=way_out) from None
    return Calendar(unit, tz)


def _duration_of(step: str, what: str, duration: object) -> timedelta:
    """Return the duration; refuse what is not one above zero and of at most a century."""
    if not isinstance(duration, timedelta):
        text, way_out = f"{step} takes a duration as its {what}, found {duration!r}", "write lt.minutes(5), for example"
    elif not ZERO < duration <= LIMIT:
        text, way_out = f"{what} {duration} is out of range", "use more than 0 and at most 100 years"
    else:
        return duration
    raise FlowError(text, where=str(user_site()), way_out=way_out)


def _offset_of(step: str, offset: object) -> timedelta:
    """Return the offset; refuse what is not a duration of at most a century."""
    if isinstance(offset, timedelta) and abs(offset) <= LIMIT:
        return offset
    text = f"{step} takes a duration as its offset, at most 100 years, found {offset!r}"
    raise FlowError(text, where=str(user_site()), way_out="write lt.hours(6), for example")
