"""Windows of time for the second interpreter: every window is a bag, and a bag closes where the clock comes to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from interpreter_bytes import whole_bytes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
US = timedelta(microseconds=1)


@dataclasses.dataclass(frozen=True)
class Window:
    key: tuple[Any, ...]
    start: datetime
    end: datetime


class Stamped(NamedTuple):
    record: Any
    at: datetime


class Kind(NamedTuple):
    """How time is cut: into what contains a moment; of sessions only the gap is known."""

    spans: Callable[[datetime], list[tuple[datetime, datetime]]]
    gap: timedelta | None = None


def tumbling(size: timedelta, *, offset: timedelta = timedelta(0)) -> Kind:
    return sliding(size, size, offset=offset)


def sliding(size: timedelta, every: timedelta, *, offset: timedelta = timedelta(0)) -> Kind:
    def spans(at: datetime) -> list[tuple[datetime, datetime]]:
        start = EPOCH + offset + (at - EPOCH - offset) // every * every
        found = []
        while start + size > at:
            found.append((start, start + size))
            start -= every
        return found[::-1]

    return Kind(spans)


def session(gap: timedelta) -> Kind:
    return Kind(lambda _: [], gap)


def calendar(unit: str, tz: str) -> Kind:
    zone = ZoneInfo(tz)

    def begins(day: datetime) -> bool:
        return unit == "day" or (day.weekday() == 0 if unit == "week" else day.day == 1)

    def spans(at: datetime) -> list[tuple[datetime, datetime]]:
        first = at.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0, tzinfo=None)
        while not begins(first):
            first -= timedelta(days=1)
        last = first + timedelta(days=1)
        while not begins(last):
            last += timedelta(days=1)
        return [
            (each.replace(tzinfo=zone).astimezone(UTC), last.replace(tzinfo=zone).astimezone(UTC)) for each in (first,)
        ]

    return Kind(spans)


def stamped(records: Sequence[Any], by: Any) -> list[Stamped]:
    return [Stamped(record, getattr(record, by) if isinstance(by, str) else by(record)) for record in records]


class Result(NamedTuple):
    """What a bag keeps, and what it gives; `add` and `merge` take and give what is kept."""

    add: Callable[[Any, Any, Any], Any]
    """What is kept (None of nothing), a record's place, and the record."""
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Window, Any], list[Any]]


def reducing(function: Any) -> Result:
    return Result(
        lambda kept, _, value: value if kept is None else function(kept, value), function, lambda _, kept: [kept]
    )


def folding(function: Any, initial: Any, finish: Any, merge: Any) -> Result:
    def add(kept: Any, _: Any, value: Any) -> Any:
        return (function(initial if kept is None else kept[0], value),)

    return Result(add, lambda one, other: (merge(one[0], other[0]),), lambda window, kept: [finish(window, kept[0])])


def applying(function: Any) -> Result:
    def finish(window: Window, kept: Any) -> list[Any]:
        return list(function(window, tuple(value for _, value in sorted(kept, key=lambda pair: pair[0]))))

    return Result(lambda kept, place, value: (*(kept or ()), (place, value)), lambda one, other: one + other, finish)


def aggregating(record: Any, keys: Sequence[str], columns: dict[str, Any]) -> Result:
    wanted = {field.name for field in dataclasses.fields(record)}

    def finish(window: Window, kept: tuple[Any, ...]) -> list[Any]:
        values = dict(zip(keys, window.key, strict=True))
        values |= {"window_start": window.start, "window_end": window.end}
        values = {name: value for name, value in values.items() if name in wanted}
        return [record(**values, **{name: column(kept) for name, column in columns.items()})]

    return Result(lambda kept, _, value: (*(kept or ()), value), lambda one, other: one + other, finish)


class Bags:
    """The open windows of one step: by key and bounds what they keep.

    Args:
        rest: What the user said of the step.
        number: Its number among the flow's steps.
        looks_ahead: Whether a record can be ahead of its log time.
    """

    def __init__(self, rest: dict[str, Any], number: int, *, slack_ms: int, units: int, looks_ahead: bool) -> None:
        self._rest, self._looks_ahead = rest, looks_ahead
        self._slack, self._first = timedelta(milliseconds=slack_ms), number * units
        self._open: dict[tuple[Any, ...], dict[tuple[datetime, datetime], Any]] = {}
        self._units: dict[tuple[Any, ...], int] = {}

    def closing(self, end: datetime) -> int:
        """The first tick that is not before an end and its wait."""
        tick: int = -((EPOCH - end - self._rest["wait"]) // self._slack)
        return tick

    def place(self, tick: int, unit: int) -> tuple[int, int, int]:
        return tick, -1, self._first + unit

    def take(self, key: tuple[Any, ...], record: Any) -> tuple[bool, list[Any], set[int]]:
        """True if a record is late, what it gives at once, and ticks at which its windows may close."""
        began = EPOCH + record.tick * self._slack
        time = self._rest["time"]
        at = began if time is None else getattr(record.value, time).astimezone(UTC)
        if self._looks_ahead and at > began + self._slack - US + self._rest["ahead"]:
            return True, [], set()
        mine = dict(self._open.get(key, {}))
        is_late, taken = self._taken(mine, at, record, limited=time is not None)
        self._open[key], self._units[key] = mine, record.unit
        outs = []
        if self._rest["emit"] == "update":
            outs = [out for span in taken for out in self._rest["result"].finish(Window(key, *span), mine[span])]
        return is_late, outs, {self.closing(end) for _, end in taken}

    def _taken(self, mine: dict[Any, Any], at: datetime, record: Any, *, limited: bool) -> tuple[bool, list[Any]]:
        kind, result = self._rest["windows"], self._rest["result"]

        def closed(end: datetime) -> bool:
            place: tuple[int, int, int] = record.place[:3]
            return self.place(self.closing(end), record.unit) < place

        if kind.gap is None:
            spans = kind.spans(at)
            there = [span for span in spans if not closed(span[1])]
            for span in there:
                mine[span] = result.add(mine.get(span), record.place, record.value)
            return len(there) < len(spans), there
        if limited and closed(at + US) and not any(start <= at < end for start, end in mine):
            return True, []
        touched = sorted(span for span in mine if span[0] - kind.gap < at < span[1])
        kept = None
        for span in touched:
            bag = mine.pop(span)
            kept = bag if kept is None else result.merge(kept, bag)
        whole = (min([at, *(start for start, _ in touched)]), max([at + kind.gap, *(end for _, end in touched)]))
        mine[whole] = result.add(kept, record.place, record.value)
        return False, [whole]

    def close(self, tick: int, unit: int) -> Iterator[tuple[Window, Any]]:
        """Windows that close at a place, in order; they are taken out."""
        found = [
            (end, start, whole_bytes(key), key)
            for key, mine in self._open.items()
            for start, end in mine
            if self._units[key] == unit and self.closing(end) == tick
        ]
        for end, start, _, key in sorted(found, key=lambda each: each[:3]):
            yield Window(key, start, end), self._open[key].pop((start, end))
