"""Joins for the second interpreter: all records that ever came in time, and what a record may be paired with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from interpreter_windows import EPOCH, US


@dataclasses.dataclass
class Near:
    """A record that is in time."""

    record: Any
    key: Any
    port: int
    at: datetime
    paired: bool = False


class Nears:
    """The records of one join.

    Args:
        rest: What the user said of the step.
        number: Its number among the flow's steps.
        looks_ahead: Whether a record can be ahead of its log time.
    """

    def __init__(self, rest: dict[str, Any], number: int, *, slack_ms: int, units: int, looks_ahead: bool) -> None:
        self._rest, self._looks_ahead = rest, looks_ahead
        self._slack, self._first = timedelta(milliseconds=slack_ms), number * units
        self._reach = (rest["after"], rest["before"])
        self._all: list[Near] = []

    def place(self, tick: int, unit: int) -> tuple[int, int, int]:
        return tick, -1, self._first + unit

    def _due(self, at: datetime) -> int:
        return -((EPOCH - at) // self._slack)

    def _at(self, port: int, record: Any) -> datetime:
        time = self._rest["time"]
        at: datetime = EPOCH + record.tick * self._slack if time is None else getattr(record.value, time[port])
        return at.astimezone(UTC)

    def is_late(self, port: int, record: Any) -> bool:
        if self._rest["time"] is None:
            return False
        at, began = self._at(port, record), EPOCH + record.tick * self._slack
        if self._looks_ahead and at > began + self._slack - US + self._rest["ahead"]:
            return True
        closed: bool = self.place(self._due(at + self._rest["wait"][port] + US), record.unit) < record.place[:3]
        return closed

    def _last(self, port: int, at: datetime) -> datetime:
        last: datetime = at + self._reach[port] + self._rest["wait"][1 - port]
        return last

    def ends(self, port: int, record: Any) -> int:
        """The first tick before which the last partner has come, and not the record's own."""
        ends: int = max(self._due(self._last(port, self._at(port, record)) + US), record.tick + 1)
        return ends

    def take(self, key: Any, port: int, record: Any) -> Iterator[tuple[Any, Any]]:
        """The pairs that a record makes with all that came before."""
        mine = Near(record, key, port, self._at(port, record))
        for other in sorted(self._all, key=lambda each: each.record.place):
            left, right = (mine, other) if port == 0 else (other, mine)
            if other.port == port or other.key != key or None in key:
                continue
            if left.at - self._rest["before"] <= right.at <= left.at + self._rest["after"]:
                mine.paired = other.paired = True
                yield left.record.value, right.record.value
        self._all.append(mine)

    def leave(self, tick: int, unit: int) -> list[tuple[Any, tuple[Any, Any]]]:
        """What comes out alone at a place, in order: each record with the pair it makes with nothing."""
        outer = [port for port, word in enumerate(("left", "right")) if self._rest["how"] in (word, "outer")]
        found = [
            each
            for each in self._all
            if each.port in outer
            and not each.paired
            and each.record.unit == unit
            and self.ends(each.port, each.record) == tick
        ]
        found.sort(key=lambda each: (self._last(each.port, each.at), each.port, each.record.place))
        values = [(each.record.value, each.port) for each in found]
        return [(value, (value, None) if port == 0 else (None, value)) for value, port in values]


class AsofNears(Nears):
    """The records of one `join_asof`."""

    def ends(self, port: int, record: Any) -> int:
        """The first tick that has nothing up to a record's time and its wait."""
        return self._due(self._at(port, record) + self._rest["wait"][0] + US)

    def take(self, key: Any, port: int, record: Any) -> Iterator[tuple[Any, Any]]:
        """Nothing comes at once."""
        self._all.append(Near(record, key, port, self._at(port, record)))
        yield from ()

    def leave(self, tick: int, unit: int) -> list[tuple[Any, tuple[Any, Any]]]:
        """What comes out at a place, in order: each record with the newest that is not after it, nor too old."""
        found = []
        rights = [each for each in self._all if each.port == 1]
        lefts = [each for each in self._all if each.port == 0 and each.record.unit == unit]
        for left in sorted(lefts, key=lambda each: (each.at, each.record.place)):
            if self.ends(0, left.record) != tick:
                continue
            near = [
                each
                for each in rights
                if each.key == left.key
                and None not in left.key
                and left.at - self._rest["back"] <= each.at <= left.at
                and each.record.place < (*self.place(tick, unit), ())
            ]
            near.sort(key=lambda each: (each.at, each.record.place))
            if near or self._rest["how"] == "left":
                found.append((left.record.value, (left.record.value, near[-1].record.value if near else None)))
        return found
