"""What becomes of a record that failed, if the flow names a sink for such."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from lowtide.core.operators.failure import shortened
from lowtide.core.operators.order import Position


@dataclass(frozen=True, slots=True)
class Dead:
    """A record for the dead letters.

    Attributes:
        vertex: The name of the step that failed.
        position: Where the message that the record was made of stands in the log; the way back to it.
        timestamp: When the record's tick began, in ms.
        error: What happened, in one line.
        key: At level 0 the original message's key; after an exchange, where the message is not known any more, None.
        value: At level 0 the original message's value; after an exchange the failed step's record as JSON. Of what is
            larger than a frame only the first part.
        headers: At level 0 the original message's headers, packed as they came; else None.
    """

    vertex: str
    position: Position
    timestamp: int
    error: str
    key: bytes | None
    value: bytes | None
    headers: bytes | None = None

    def describe(self) -> list[tuple[str, bytes]]:
        """What goes beside the original as headers of the dead letter."""
        return [
            ("lowtide.vertex", self.vertex.encode()),
            ("lowtide.front", str(self.position.front).encode()),
            ("lowtide.offset", str(self.position.sequence).encode()),
            ("lowtide.error", self.error.encode("utf-8", "replace")),
        ]


def as_json(record: object) -> bytes:
    """A record as JSON, or as text if it is none: it failed, so its fields may hold anything."""
    try:
        return msgspec.json.encode(record)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return shortened(record).encode("utf-8", "replace")
