"""Estimates of the memory that kept records take: every sixteenth is weighed, and counts for those after it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from sys import getsizeof
from typing import Any, Literal, NamedTuple

EVERY = 16
BYTES_A_VALUE = 256
SHARED = (type(None), bool)
"""Types whose values stand in memory once."""

KeptWhat = Literal["keys", "records", "rows", "timers", "windows"]


class Kept(NamedTuple):
    """The size of what a step keeps.

    Attributes:
        what: "keys" that have a state, "records" that wait for partners, "rows" of a table, "timers" of keys that are
            to be called, or "windows" that are open.
        number: How many.
        bytes: About how much memory they take.
    """

    what: KeptWhat
    number: int
    bytes: int


class Scale:
    """Weighs every `EVERY`th value; one between weighs what the last one did.

    Args:
        thrifty: Whether fewer are weighed where they are large, so that weighing values that grow takes no longer than
            making them: after one of so many `BYTES_A_VALUE` as many pass.

    Attributes:
        mean: What a value weighs on average, over some thousand of them.
    """

    __slots__ = ("_last", "_seen", "_thrifty", "_turn", "mean")

    def __init__(self, *, thrifty: bool = False) -> None:
        self._thrifty = thrifty
        self.mean = 0.0
        self._last = 0
        self._seen = 0
        self._turn = 0

    def weigh(self, value: Any) -> int:
        """About how many bytes a value takes."""
        if self._turn:
            self._turn -= 1
            return self._last
        self._last = memory_of(value)
        self._turn = max(EVERY - 1, self._last // BYTES_A_VALUE) if self._thrifty else EVERY - 1
        self._seen = min(self._seen + 1, 256)
        self.mean += (self._last - self.mean) / self._seen
        return self._last


def memory_of(value: Any) -> int:
    """Return the bytes that a value takes with all that is in it; shared parts count each time."""
    kind = type(value)
    if kind in SHARED:
        return 0
    size = getsizeof(value)
    if kind in (list, tuple):
        return size + sum(map(memory_of, value))
    if kind is dict:
        return size + sum([memory_of(name) + memory_of(each) for name, each in value.items()])
    if not is_dataclass(kind):
        return size
    inner = getattr(value, "__dict__", None)
    own = 0 if inner is None else getsizeof(inner)
    return size + own + sum([memory_of(getattr(value, name)) for name in _fields(kind)])


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
