"""`write`: records become messages, each in its lane."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowtide.connectors.spec import KafkaSink
from lowtide.inference import key_column
from lowtide.operators.batch import Batch


class SinkOperator:
    """Encodes records; they are checked against their types before, see `as_columns`."""

    def __init__(self, sink: KafkaSink, lane_of_unit: npt.NDArray[np.int32]) -> None:
        self._format = sink.format
        self._key = key_column(sink)
        self._lane_of_unit = lane_of_unit

    def values(self, batch: Batch) -> list[bytes | None]:
        """The messages' values; None is Kafka's tombstone, which only `raw()` writes."""
        return self._format.encode(batch.rows())

    def keys(self, batch: Batch) -> list[bytes | None]:
        """The messages' keys."""
        if self._key is None:
            return [None] * len(batch)
        return message_keys(batch.column(self._key))

    def lanes(self, batch: Batch) -> npt.NDArray[np.int32]:
        """The records' lanes, int32[n]."""
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
