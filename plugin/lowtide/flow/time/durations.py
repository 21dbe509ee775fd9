"""Durations: what `ttl=`, `within=`, `wait=` and the sizes of windows are written with."""

from __future__ import annotations

from datetime import timedelta

from lowtide.errors import FlowError
from lowtide.flow.site import user_site
from lowtide.flow.time.moments import ZERO, micros

__all__ = ["LIMIT", "bounded_duration", "days", "duration_of", "hours", "millis", "minutes", "seconds", "ticks_of"]

LIMIT = timedelta(days=36_525)
"""The longest size, gap, wait or look ahead: a century."""


def millis(number: float) -> timedelta:
    """So many milliseconds."""
    return timedelta(milliseconds=number)


def seconds(number: float) -> timedelta:
    """So many seconds."""
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    """So many minutes."""
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    """So many hours."""
    return timedelta(hours=number)


def days(number: float) -> timedelta:
    """So many times 24 hours."""
    return timedelta(days=number)


def duration_of(step: str, argument: str, duration: timedelta) -> timedelta:
    """The duration, refused if it is none that is above zero."""
    if not isinstance(duration, timedelta) or duration <= timedelta():
        raise FlowError(
            f"{step} takes {argument}=, a duration above zero, found {duration!r}",
            where=str(user_site()),
            way_out=f"write {argument}=lt.hours(1), or another of lt.millis, seconds, minutes, hours, days",
        )
    return duration


def bounded_duration(step: str, argument: str, duration: object) -> timedelta:
    """The duration, refused if it is not one from 0 to a century; `step` is its kind, and its name if it has one."""
    if isinstance(duration, timedelta) and ZERO <= duration <= LIMIT:
        return duration
    what = f"{step}: {argument}= takes a duration of 0 to 100 years, found {duration!r}"
    raise FlowError(what, where=str(user_site()), way_out=f"write {argument}=lt.minutes(1), for example")


def ticks_of(duration: timedelta, slack_ms: int) -> int:
    """After how many ticks a duration is over: what is exactly so old in log time is that old."""
    return -(-micros(duration) // (slack_ms * 1_000))
