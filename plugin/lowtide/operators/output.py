"""What a program hands to the worker: each is one of three kinds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide.operators.batch import Batch
from lowtide.operators.dead_letter import Dead


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


Output = Exchange | Deliver | Dead
