"""Clocks of a flow: one record whenever log time reaches a multiple of a duration.

A clock is a scan with a timer, over one key, its name. It takes *signs*: of each front the first message in each span
from one moment to the next, even one that cannot be read, as log time reaches it all the same. The first sign of all
starts it. The newest says where it stops when all sources have ended: at the end of the last span that has a message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lowtide.errors import FlowError
from lowtide.flow.site import check_text, user_site
from lowtide.flow.steps.steps import Clock
from lowtide.flow.time.durations import duration_of
from lowtide.flow.time.every import DAY, Every
from lowtide.flow.time.moments import micros_of, moment

SHORTEST_IN_ZONE = timedelta(minutes=1)


@dataclass(frozen=True)
class Moment:
    """A clock's strike: `clock` is its name, `at` the moment that log time has reached.

    Example:
        >>> lt.Moment("minutes", noon).at.hour
        12
    """

    clock: str
    at: datetime


@dataclass(frozen=True)
class Sighted:
    """A sign for a clock: a record lies in the span that begins at or before `at`, the start of the record's tick."""

    clock: str
    at: datetime


@dataclass(frozen=True)
class Run:
    """A clock's state: its next strike, and the end of the newest span that has a record; None before any."""

    next: datetime | None = None
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Striking:
    """The functions of a clock.

    Attributes:
        name: The clock's name.
        every: The interval at which it strikes.
    """

    name: str
    every: Every

    def after(self, at: datetime) -> datetime | None:
        """Return its next strike after a moment."""
        found = self.every.after(micros_of(at))
        return None if found is None else moment(found)

    def see(self, run: Run, sign: Sighted) -> tuple[Run, list[Moment]]:
        """Take a sign; they come in the order of time."""
        after = self.after(sign.at)
        return Run(after if run == Run() else run.next, after), []

    def asks(self, run: Run) -> datetime | None:
        """Return the moment at which it wants to be called."""
        return run.next

    def strike(self, run: Run, at: datetime) -> tuple[Run, list[Moment]]:
        """Strike at a moment."""
        return replace(run, next=self.after(at)), [Moment(self.name, at)]


def ends_at(run: Run) -> bool:
    """Return whether a clock is done once all sources have ended: it is past all spans with records."""
    return run.next is None or run.last is None or run.next > run.last


def clock_of(name: str, every: timedelta, tz: str | None) -> Clock:
    """Make the step of `clock(...)`; raises FlowError for arguments that do not fit."""
    check_text("clock", name)
    duration_of("clock", "every", every)

    def refuse(what: str, way_out: str) -> FlowError:
        return FlowError(f'clock "{name}": {what}', where=str(user_site()), way_out=way_out)

    if tz is not None:
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(tz)
        except (KeyError, ValueError, TypeError, OSError):
            way_out = 'use a name of the IANA database, such as "Europe/Berlin", or leave out tz= for UTC'
            raise refuse(f"unknown time zone {tz!r}", way_out) from None
        if every < SHORTEST_IN_ZONE or (DAY % every if every < DAY else every % DAY):
            way_out = "make every= a part of a day, such as lt.hours(6), or whole days; or leave out tz="
            raise refuse(f"multiples of {every} do not fall on the same times each day in a time zone", way_out)
    striking = Striking(name, Every(every, tz))
    return Clock(striking.see, Run(), Run, Moment, None, striking.asks, striking.strike, striking=striking)
