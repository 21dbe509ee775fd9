"""The position at which a source ends, decided at a job's first start, so that the job has an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from lowtide.errors import FlowError

__all__ = ["Stop", "StopAt", "stop_of"]

StopAt = Literal["now"] | datetime | Mapping[int, int]
"""As users write it: what is there at the first start, what the log stamped before a moment, or by partition."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A parsed `stop=`: one of the three.

    Attributes:
        moment: Read up to the first record that the log has stamped then or later; in UTC; None if not set.
        offsets: Partition and the first offset not read; other partitions end at what is there; None if not set.
    """

    moment: datetime | None = None
    offsets: tuple[tuple[int, int], ...] | None = None

    def __str__(self) -> str:
        if self.moment is not None:
            return self.moment.isoformat()
        if self.offsets is not None:
            return "offsets " + ", ".join(f"{partition}: {offset}" for partition, offset in self.offsets)
        return "now"


def stop_of(said: object) -> Stop | None:
    """Parse `kafka(stop=)`; raises FlowError."""
    if said is None:
        return None
    if said == "now":
        return Stop()
    if isinstance(said, datetime):
        if said.tzinfo is None:
            raise FlowError(f"stop={said} has no time zone", way_out="give it one: datetime(..., tzinfo=UTC)")
        return Stop(moment=said.astimezone(UTC))
    if isinstance(said, Mapping) and said and all(map(_is_place, said.items())):
        return Stop(offsets=tuple(sorted(said.items())))
    raise FlowError(
        f"stop={said!r} is not a position to stop at",
        way_out='use "now", a datetime with a time zone, or offsets by partition: {0: 100}; else it has no end',
    )


def _is_place(item: tuple[object, object]) -> bool:
    return all(type(number) is int and number >= 0 for number in item)
