"""Event time as a value: the column that holds it, and how log time waits for it; windows and joins take it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, cast

from lowtide.errors import FlowError
from lowtide.flow.site import user_site, written
from lowtide.flow.time.durations import bounded_duration

AHEAD = timedelta(days=1)
"""The limit for event time ahead of log time, unless the flow sets another."""

EVENT_TIME = 'lt.event_time("at", wait=lt.seconds(1))'
"""An example, for errors."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """A column of event time, as `event_time` makes it.

    Attributes:
        column: Its name; it holds datetimes that are never None.
        wait: How far log time may be ahead of a record's event time before the record is late: 0 to 100 years.
        ahead: A record whose event time is further ahead of log time is late too: 0 to 100 years.
        late: "drop" where late records are not wanted; None where the flow takes them by `.late`.
    """

    column: str
    wait: timedelta
    ahead: timedelta = AHEAD
    late: Literal["drop"] | None = None


EventTimes = EventTime | tuple[EventTime, EventTime]
"""A join's: one for both streams, or one for each."""


@written(EVENT_TIME)
def event_time(
    column: str, *, wait: timedelta, ahead: timedelta = AHEAD, late: Literal["drop"] | None = None
) -> EventTime:
    """Name a column of event time, for `window`, `join` and `join_asof`; the same value may be given to all of them.

    Args:
        column: The column's name; it holds datetimes that are never None.
        wait: How far log time may be ahead of a record's event time before the record is late: 0 to 100 years.
        ahead: A record whose event time is further ahead of log time is late too: 0 to 100 years, by default a day.
        late: "drop" where late records are not wanted; else take them by `.late`.

    Raises:
        FlowError: `column` is not a string, `wait` or `ahead` not such a duration, or `late` another word.

    Example:
        >>> clock = lt.event_time("at", wait=lt.seconds(1))
        >>> clock.column, clock.wait
        ('at', datetime.timedelta(seconds=1))
    """
    if not isinstance(cast(object, column), str):
        what = f"event_time takes the name of a column, found {column!r}"
        raise FlowError(what, where=str(user_site()), way_out=f"write {EVENT_TIME}, for example")
    label = f"event_time {column!r}"
    bounded_duration(label, "wait", wait)
    bounded_duration(label, "ahead", ahead)
    if late not in (None, "drop"):
        what = f'{label}: late= takes "drop" or nothing, found {late!r}'
        raise FlowError(what, where=str(user_site()), way_out="take the late records by .late instead")
    return EventTime(column, wait, ahead, late)
