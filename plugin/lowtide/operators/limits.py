"""How large records and frames may be, and what becomes of a record that is larger. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lowtide.bytes_column import BytesColumn
from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure
from lowtide.operators.fault import Fault, Original
from lowtide.operators.meta import Meta
from lowtide.operators.source import SourceRows
from lowtide.plan import Vertex

__all__ = ["Limits"]

LETTER_BYTES = 64 << 10
"""Of a record that is too large, a dead letter holds this much."""
META_BYTES = 48
"""About what a record's meta takes in a frame."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The size limits of a worker.

    Attributes:
        frame_bytes: About how much a frame holds.
        max_frame_bytes: Size limit of a record, and so of a frame that holds one alone.
        max_frame_rows: Records per frame at most.
    """

    frame_bytes: int
    max_frame_bytes: int
    max_frame_rows: int

    def messages(
        self, rows: SourceRows, source: Vertex, meta_of: Callable[[SourceRows], Meta]
    ) -> tuple[SourceRows, Batch | None]:
        """Return the labelled messages that are small enough, and a batch of `Fault`s for the others.

        One look at all of them if they are small together.

        Args:
            rows: The messages.
            source: Who reads them.
            meta_of: Gives their meta, as that source has it.
        """
        limit = self.max_frame_bytes
        if len(rows.values.data) + len(rows.keys.data) <= limit:
            return rows, None
        sizes = np.diff(rows.values.offsets) + np.diff(rows.keys.offsets)
        large = np.flatnonzero(sizes > limit).tolist()
        if not large:
            return rows, None
        meta = meta_of(rows).take(np.array(large, np.int64))
        found = [Fault(source, self._failure(index, None, int(sizes[index])), _cut(rows, index)) for index in large]
        return _without(rows, large), Batch(None, meta, rows=found)

    def records(self, batch: Batch, exchange: Vertex) -> tuple[Batch, Batch | None]:
        """Return the records that fit into a frame, and a batch of `Fault`s for the others; columns are made.

        One look at all of them if they are small together.
        """
        if _bytes_of(batch) <= self.max_frame_bytes:
            return batch, None
        sizes = [_bytes_of(batch.take(np.array([index]))) for index in range(len(batch))]
        large = [index for index, size in enumerate(sizes) if size > self.max_frame_bytes]
        if not large:
            return batch, None
        rows = batch.rows()
        found = []
        for index in large:
            original = Original(None, repr(rows[index]).encode("utf-8", "replace")[:LETTER_BYTES], None)
            found.append(Fault(exchange, self._failure(index, rows[index], sizes[index]), original))
        faults = Batch(None, batch.meta.take(np.array(large, np.int64)), rows=found)
        return batch.take(np.delete(np.arange(len(batch)), large)), faults

    def frames(self, batch: Batch) -> Iterator[Batch]:
        """Cut records into pieces of about `frame_bytes`; only a piece of one record may be larger."""
        rows = len(batch)
        if rows <= 1 or (rows <= self.max_frame_rows and _bytes_of(batch) <= self.frame_bytes):
            yield batch
            return
        half = rows // 2
        yield from self.frames(batch.take(np.arange(half)))
        yield from self.frames(batch.take(np.arange(half, rows)))

    def _failure(self, index: int, record: object, size: int) -> Failure:
        error = f"is of {size} bytes and larger than a frame may be, {self.max_frame_bytes} bytes"
        return Failure(index, record, error, too_large=True)


def _bytes_of(batch: Batch) -> int:
    return META_BYTES * len(batch) + sum(int(column.nbytes) for column in batch.columns())


def _cut(rows: SourceRows, index: int) -> Original:
    key, value = rows.keys[index], rows.values[index]
    headers = None if rows.headers is None else rows.headers[index]
    return Original(key and key[:LETTER_BYTES], value and value[:LETTER_BYTES], headers)


def _without(rows: SourceRows, left_out: list[int]) -> SourceRows:
    """Return the messages but those at these indices; copies, for rare use."""
    kept = np.delete(np.arange(len(rows)), left_out)

    def some(column: BytesColumn) -> BytesColumn:
        return BytesColumn.from_list([column[index] for index in kept.tolist()])

    headers = None if rows.headers is None else some(rows.headers)
    return SourceRows(
        rows.front,
        rows.offsets[kept],
        rows.timestamps[kept],
        some(rows.keys),
        some(rows.values),
        headers,
        None if rows.ticks is None else rows.ticks[kept],
    )
