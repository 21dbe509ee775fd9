"""The positions from which and up to which a job reads a source: resolved at its first start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from lowtide.errors import FlowError

__all__ = ["EARLIEST", "NOW", "Bound", "StartAt", "StopAt", "start_of", "stop_of"]

StartAt = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""As users write it: what is there, what comes from now on, what the log stamped from a moment on, or by partition."""
StopAt = Literal["now"] | datetime | Mapping[int, int]
"""As users write it: what is there at the first start, what the log stamped before a moment, or by partition."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A parsed `start=` or `stop=`: a word, a moment or offsets.

    Attributes:
        word: "earliest", "latest" or "now"; empty if another attribute is set.
        moment: The time of the first record that the log has stamped then or later, in UTC; None if not set.
        offsets: Partition and offset, of a stop the first one not read; other partitions are read from their beginning
            or to what is there. None if not set.
    """

    word: Literal["earliest", "latest", "now", ""] = ""
    moment: datetime | None = None
    offsets: tuple[tuple[int, int], ...] | None = None

    def __str__(self) -> str:
        if self.moment is not None:
            return self.moment.isoformat()
        if self.offsets is not None:
            return "offsets " + ", ".join(f"{partition}: {offset}" for partition, offset in self.offsets)
        return self.word


EARLIEST, LATEST, NOW = Bound("earliest"), Bound("latest"), Bound("now")


def start_of(said: object) -> Bound:
    """Parse `kafka(start=)`; raises FlowError."""
    bound = _bound("start", said, {"earliest": EARLIEST, "latest": LATEST})
    if bound is None:
        raise FlowError(
            f"start={said!r} is not a position to start from",
            way_out='use "earliest", "latest", a datetime with a time zone, or offsets by partition: {0: 100}',
        )
    return bound


def stop_of(said: object) -> Bound | None:
    """Parse `kafka(stop=)`; raises FlowError."""
    if said is None:
        return None
    bound = _bound("stop", said, {"now": NOW})
    if bound is None:
        raise FlowError(
            f"stop={said!r} is not a position to stop at",
            way_out='use "now", a datetime with a time zone, or offsets by partition: {0: 100}; else it has no end',
        )
    return bound


def _bound(argument: str, said: object, words: Mapping[str, Bound]) -> Bound | None:
    """Parse what a user wrote; None if it is not a position."""
    if isinstance(said, str):
        return words.get(said)
    if isinstance(said, datetime):
        if said.tzinfo is None:
            raise FlowError(f"{argument}={said} has no time zone", way_out="give it one: datetime(..., tzinfo=UTC)")
        return Bound(moment=said.astimezone(UTC))
    if isinstance(said, Mapping) and said and all(map(_is_place, said.items())):
        return Bound(offsets=tuple(sorted(said.items())))
    return None


def _is_place(item: tuple[object, object]) -> bool:
    return all(type(number) is int and number >= 0 for number in item)
