"""How large records and frames may be, and what becomes of a record that is larger."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lowtide.bytes_column import BytesColumn
from lowtide.errors import FrameTooLarge
from lowtide.operators.dead_letter import Dead
from lowtide.operators.meta import Position
from lowtide.operators.source import SourceRows
from lowtide.worker.deployment import Deployment

LETTER_BYTES = 64 << 10
"""Of a record that is too large, a dead letter holds this much."""


class Limits:
    """The size limits of one worker; pure.

    Args:
        deployment: Names the limits, and says whether there are dead letters.
        worker: The worker's name, for messages.
    """

    def __init__(self, deployment: Deployment, worker: str) -> None:
        self._deployment = deployment
        self._worker = worker

    def messages(self, rows: SourceRows, source: str) -> tuple[SourceRows, list[Dead]]:
        """Return the messages that are small enough, and dead letters for the others; one look at all if none is.

        Raises:
            FrameTooLarge: one is too large, and the flow names no dead letters.
        """
        limit = self._deployment.max_frame_bytes
        if len(rows.values.data) + len(rows.keys.data) <= limit:
            return rows, []
        sizes = np.diff(rows.values.offsets) + np.diff(rows.keys.offsets)
        large = np.flatnonzero(sizes > limit).tolist()
        letters = [self._letter(source, rows, index, int(sizes[index])) for index in large]
        return (_without(rows, large) if large else rows), letters

    def frames(self, table: pa.RecordBatch, exchange: str) -> Iterator[pa.RecordBatch | Dead]:
        """Cut records into frames of about `frame_bytes`; only a frame of one record may be larger, up to the limit.

        Raises:
            FrameTooLarge: a record is too large, and the flow names no dead letters.
        """
        rows, limit = self._deployment.max_frame_rows, self._deployment.frame_bytes
        # Of a slice the first figure counts its parent's whole buffers, but it is far cheaper than the exact one.
        if table.num_rows <= rows and (table.get_total_buffer_size() <= limit or table.nbytes <= limit):
            yield table
        elif table.num_rows > 1:
            half = table.num_rows // 2
            yield from self.frames(table.slice(0, half), exchange)
            yield from self.frames(table.slice(half), exchange)
        elif table.nbytes <= self._deployment.max_frame_bytes:
            yield table
        else:
            record = table.to_pylist()[0]
            position = Position(record["_front"], record["_sequence"])
            error = self._refuse(table.nbytes, position)
            timestamp = record["_tick"] * self._deployment.plan.slack_ms
            yield Dead(exchange, position, timestamp, error, None, repr(record).encode()[:LETTER_BYTES])

    def _letter(self, source: str, rows: SourceRows, index: int, size: int) -> Dead:
        position = Position(rows.front, int(rows.offsets[index]))
        error = self._refuse(size, position)
        key, value = rows.keys[index], rows.values[index]
        headers = None if rows.headers is None else rows.headers[index]
        cut = None if value is None else value[:LETTER_BYTES]
        return Dead(source, position, self._timestamp(rows, index), error, key and key[:LETTER_BYTES], cut, headers)

    def _timestamp(self, rows: SourceRows, index: int) -> int:
        """Return when a message's tick began, in ms."""
        assert rows.ticks is not None, "a front labels its messages before anything looks at them"
        return int(rows.ticks[index]) * self._deployment.plan.slack_ms

    def _refuse(self, size: int, position: Position) -> str:
        """Return what is wrong with a record, for its dead letter."""
        limit = self._deployment.max_frame_bytes
        if self._deployment.plan.dead_letters is not None:
            return f"a record of {size} bytes is larger than a frame may be, {limit} bytes; cut to {LETTER_BYTES}"
        raise FrameTooLarge(
            f"a record of {size} bytes is larger than a frame may be, {limit} bytes",
            where=f"worker {self._worker}, record at {self._deployment.front_name(position.front)}, "
            f"offset {position.sequence}",
            way_out="raise exchange.max_frame_bytes in the configuration, make the record smaller, or let such records "
            "go to Flow(..., dead_letters=kafka(topic, raw()))",
        )


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
