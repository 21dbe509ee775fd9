"""`read`: messages become records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide.bytes_column import BytesColumn
from lowtide.connectors.spec import KafkaSource
from lowtide.operators.batch import Batch
from lowtide.operators.failure import unreadable
from lowtide.operators.meta import Meta
from lowtide.operators.order import step_id
from lowtide.operators.per_record import Stepped
from lowtide.schema import schema_of


@dataclass(frozen=True, slots=True, eq=False)
class SourceRows:
    """n messages of one source partition, in the log's order.

    Attributes:
        front: The partition's number in the front register.
        offsets: int64[n], ascending.
        timestamps: int64[n], the log's timestamps in ms.
        keys: n keys, null where a message has none.
        values: n values, null for Kafka's tombstones.
        headers: n packed lists of headers as they came; None if there are none. Kept for dead letters.
        ticks: int64[n], the labels; None before the front has labelled them.
    """

    front: int
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    keys: BytesColumn
    values: BytesColumn
    headers: BytesColumn | None = None
    ticks: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def index_of(self, offset: int) -> int:
        """Where the message with this offset stands."""
        return int(np.searchsorted(self.offsets, offset))

    def slice(self, start: int, stop: int) -> SourceRows:
        """Messages `start` to `stop`, without the latter, with their labels; copies the bytes of keys and values."""
        if start == 0 and stop == len(self):
            return self
        return SourceRows(
            self.front,
            self.offsets[start:stop],
            self.timestamps[start:stop],
            self.keys.slice(start, stop),
            self.values.slice(start, stop),
            None if self.headers is None else self.headers.slice(start, stop),
            None if self.ticks is None else self.ticks[start:stop],
        )


class SourceOperator:
    """Parses messages; a failure's record is the message's value.

    Args:
        job: The flow's name.
        name: The source's name.
        source: What is read.
    """

    def __init__(self, job: str, name: str, source: KafkaSource) -> None:
        self._job = job
        self._name = name
        self._format = source.format
        self._schema = schema_of(source.format.record)
        self._ids: dict[int, int] = {}

    def parse(self, rows: SourceRows) -> Stepped:
        """Make a batch of what can be parsed, and name the rest."""
        meta = self.meta(rows)
        columns = self._format.columns(rows.keys, rows.values)
        if columns is not None:
            return Stepped(Batch(self._schema, meta, columns=columns), [])
        decoded = self._format.decode(rows.keys, rows.values)
        if decoded.failures:
            meta = meta.take(np.delete(np.arange(len(rows)), [index for index, _ in decoded.failures]))
        failures = [
            unreadable(index, rows.values[index], self._format, self._schema.record, reason)
            for index, reason in decoded.failures
        ]
        return Stepped(Batch(self._schema, meta, rows=decoded.rows), failures)

    def meta(self, rows: SourceRows) -> Meta:
        """The meta of messages that have their labels."""
        assert rows.ticks is not None, "a front labels its messages before they are processed"
        return Meta.of_source(rows.front, self._id(rows.front), rows.offsets, rows.ticks)

    def _id(self, front: int) -> int:
        if front not in self._ids:
            self._ids[front] = int(step_id(self._job, self._name, 0, front))
        return self._ids[front]
