"""`write`: records become messages, each in its lane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowtide.connectors.spec import KafkaSink
from lowtide.inference import key_column
from lowtide.operators.batch import Batch
from lowtide.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """n messages for a sink.

    Attributes:
        keys: The messages' keys, None for none.
        values: The messages' values, None for Kafka's tombstone.
        timestamps: int64[n], ms: when the records' ticks began (R13).
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)


class SinkOperator:
    """Encodes records that a barrier has let through; they are checked against their types before, see `as_columns`.

    Args:
        sink: What is written to.
        plan: The plan, for its lanes and slack.
    """

    def __init__(self, sink: KafkaSink, plan: Plan) -> None:
        self._format = sink.format
        self._key = key_column(sink)
        self._lane_of_unit = plan.lane_of_unit()
        self._slack_ms = plan.slack_ms

    def encode(self, batch: Batch) -> Messages:
        """The records as messages, in their order; one call of the encoder per record."""
        keys: list[bytes | None] = [None] * len(batch) if self._key is None else message_keys(batch.column(self._key))
        return Messages(keys, self._format.encode(batch.rows()), batch.meta.tick * self._slack_ms)

    def lanes(self, batch: Batch) -> npt.NDArray[np.int32]:
        """The records' lanes, int32[n]; a function of the last exchange's hash unit (R12)."""
        assert batch.meta.unit is not None, "a write stands behind an exchange"
        return self._lane_of_unit[batch.meta.unit]


def message_keys(column: pa.Array) -> list[bytes | None]:
    """A column as messages' keys: str in UTF-8, bytes as they are, int in decimal digits, None for null."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    # The same buffers under another type: a cast would cost more than all else for a small batch.
    as_bytes = pa.Array.from_buffers(pa.binary(), len(column), column.buffers(), column.null_count, column.offset)
    keys: list[bytes | None] = as_bytes.to_numpy(zero_copy_only=False).tolist()
    return keys
