"""The position from which a job's first start reads a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from lowtide.errors import FlowError

__all__ = ["EARLIEST", "Start", "StartAt", "start_of"]

StartAt = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""As users write it: what is there, what comes from now on, what the log stamped from a moment on, or by partition."""


@dataclass(frozen=True, slots=True)
class Start:
    """A parsed `start=`: one of the four.

    Attributes:
        word: "earliest" or "latest"; "earliest" if another attribute is set.
        moment: Read what the log has stamped from then on, in UTC; None if not set.
        offsets: Partition and offset of each that is not read from its beginning; None if not set.
    """

    word: Literal["earliest", "latest"] = "earliest"
    moment: datetime | None = None
    offsets: tuple[tuple[int, int], ...] | None = None

    def __str__(self) -> str:
        if self.moment is not None:
            return self.moment.isoformat()
        if self.offsets is not None:
            return "offsets " + ", ".join(f"{partition}: {offset}" for partition, offset in self.offsets)
        return self.word


EARLIEST = Start()


def start_of(said: object) -> Start:
    """Parse `kafka(start=)`; raises FlowError."""
    if said in ("earliest", "latest"):
        return Start(said)
    if isinstance(said, datetime):
        if said.tzinfo is None:
            raise FlowError(f"start={said} has no time zone", way_out="give it one: datetime(..., tzinfo=UTC)")
        return Start(moment=said.astimezone(UTC))
    if isinstance(said, Mapping) and said and all(map(_is_place, said.items())):
        return Start(offsets=tuple(sorted(said.items())))
    raise FlowError(
        f"start={said!r} is not a position to start from",
        way_out='use "earliest", "latest", a datetime with a time zone, or offsets by partition: {0: 100}',
    )


def _is_place(item: tuple[object, object]) -> bool:
    return all(type(number) is int and number >= 0 for number in item)
