"""What a program hands to the worker: each is one of three kinds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide.operators.batch import Batch
from lowtide.operators.meta import Position


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Records for the next level.

    Attributes:
        vertex: The exchange's id, which the next level's program is fed with.
        batch: The records with their hash units, columns made: `split` it by `plan.worker_of_unit()`, then `to_arrow`.
    """

    vertex: int
    batch: Batch


@dataclass(frozen=True, slots=True, eq=False)
class Deliver:
    """Messages for a sink, n of them.

    Attributes:
        vertex: The sink's id.
        keys: The messages' keys, None for none.
        values: The messages' values, None for Kafka's tombstone.
        timestamps: int64[n], ms.
        lanes: int32[n].
        batch: The records, for their meta.
    """

    vertex: int
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: npt.NDArray[np.int64]
    lanes: npt.NDArray[np.int32]
    batch: Batch


@dataclass(frozen=True, slots=True)
class Dead:
    """A record for the dead letters.

    Attributes:
        vertex: The name of the step that failed.
        position: Where the record, or the message it was made of, stands in the log.
        timestamp: The log's timestamp in ms.
        error: What happened, in one line.
        key: At level 0 the original message's key; behind an exchange None.
        value: At level 0 the original message's value; behind an exchange the failed step's record as JSON.
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


Output = Exchange | Deliver | Dead
