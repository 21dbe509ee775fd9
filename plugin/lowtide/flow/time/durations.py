"""Durations, for `ttl=`, `within=`, `wait=` and the sizes of windows."""

from __future__ import annotations

from datetime import timedelta

from lowtide.errors import FlowError
from lowtide.flow.site import user_site
from lowtide.flow.time.moments import ZERO, micros

LIMIT = timedelta(days=36_525)
"""The longest size, gap, wait or look ahead: a century."""


def millis(number: float) -> timedelta:
    """Return a duration in milliseconds.

    Example:
        >>> lt.millis(250)
        datetime.timedelta(microseconds=250000)
    """
    return timedelta(milliseconds=number)


def seconds(number: float) -> timedelta:
    """Return a duration in seconds.

    Example:
        >>> lt.seconds(30)
        datetime.timedelta(seconds=30)
    """
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    """Return a duration in minutes.

    Example:
        >>> lt.minutes(5)
        datetime.timedelta(seconds=300)
    """
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    """Return a duration in hours.

    Example:
        >>> lt.hours(1)
        datetime.timedelta(seconds=3600)
    """
    return timedelta(hours=number)


def days(number: float) -> timedelta:
    """Return a duration in days of 24 hours.

    Example:
        >>> lt.days(7)
        datetime.timedelta(days=7)
    """
    return timedelta(days=number)


def duration_of(step: str, argument: str, duration: timedelta) -> timedelta:
    """Return the duration; refuse what is not a duration above zero."""
    if not isinstance(duration, timedelta) or duration <= timedelta():
        raise FlowError(
            f"{step} takes {argument}=, a duration above zero, found {duration!r}",
            where=str(user_site()),
            way_out=f"write {argument}=lt.hours(1), or another of lt.millis, seconds, minutes, hours, days",
        )
    return duration


def bounded_duration(step: str, argument: str, duration: object) -> timedelta:
    """Return the duration; refuse one outside 0 to a century; `step` is its kind, and its name if it has one."""
    if isinstance(duration, timedelta) and ZERO <= duration <= LIMIT:
        return duration
    what = f"{step}: {argument}= takes a duration of 0 to 100 years, found {duration!r}"
    raise FlowError(what, where=str(user_site()), way_out=f"write {argument}=lt.minutes(1), for example")


def ticks_of(duration: timedelta, slack_ms: int) -> int:
    """Return the ticks after which a duration is over: something exactly that old in log time has reached it."""
    return -(-micros(duration) // (slack_ms * 1_000))
