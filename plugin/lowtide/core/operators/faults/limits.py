"""Size limits of records and frames, and the fate of a record that is larger. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lowtide.core.fronts.source_rows import ROW_BYTES, SourceRows
from lowtide.core.operators.faults.failure import Failure, Fault, Original, original_of
from lowtide.core.operators.order.batch import Batch
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import encode_rows

LETTER_BYTES = 64 << 10
"""The bytes of a too large record that a dead letter holds."""
PLACE_BYTES = 48
"""The approximate bytes of a record in a frame besides its own: its order key and its hash unit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The size limits of a worker.

    Attributes:
        frame_bytes: The approximate size of a frame.
        max_frame_bytes: Size limit of a record, and so of a frame that holds one alone.
        max_frame_rows: The largest number of records in a frame.
        max_join_bytes: The memory that the records of one join may take.
    """

    frame_bytes: int
    max_frame_bytes: int
    max_frame_rows: int
    max_join_bytes: int = 1 << 30

    def messages(self, rows: SourceRows) -> list[int]:
        """The indices of the messages that are too large; one look at all of them if they are small together."""
        limit = self.max_frame_bytes + ROW_BYTES
        if rows.size <= limit:
            return []
        headers = rows.headers or [b""] * len(rows)
        sizes = (rows.bytes_of(index) - len(headers[index]) for index in range(len(rows)))
        return [index for index, size in enumerate(sizes) if size > limit]

    def message_fault(self, rows: SourceRows, index: int, source: Vertex) -> Fault:
        """Make the fault of a message that is too large."""
        original = original_of(rows, rows.offsets[index])
        size = len(original.key or b"") + len(original.value or b"")
        cut = Original(
            original.key and original.key[:LETTER_BYTES],
            original.value and original.value[:LETTER_BYTES],
            original.headers,
        )
        return Fault(source, self._failure(index, None, size), cut)

    def has_room(self, payload: bytes, batch: Batch) -> bool:
        """Return whether encoded records fit into one frame; a single record may have a frame of its own."""
        n = len(batch.ats)
        size = len(payload) + PLACE_BYTES * n
        if size > self.max_frame_bytes:
            return False
        return n == 1 or (size <= self.frame_bytes and n <= self.max_frame_rows)

    def records(self, batch: Batch, exchange: Vertex) -> tuple[Batch, Batch | None]:
        """Return the records that fit into a frame, perhaps none, and a batch of `Fault`s for the others."""
        sizes = [len(encode_rows([row])) + PLACE_BYTES for row in batch.rows]
        large = [index for index, size in enumerate(sizes) if size > self.max_frame_bytes]
        if not large:
            return batch, None
        found = []
        for index in large:
            row = batch.rows[index]
            original = Original(None, repr(row).encode("utf-8", "replace")[:LETTER_BYTES], None)
            found.append(Fault(exchange, self._failure(index, row, sizes[index]), original))
        return batch.without(large), batch.pick(large).with_rows(found)

    def pieces(self, batch: Batch) -> Iterator[tuple[Batch, bytes]]:
        """Cut records into pieces of about `frame_bytes`, each with its encoded records."""
        payload, n = encode_rows(batch.rows), len(batch.ats)
        if n == 1 or self.has_room(payload, batch):
            yield batch, payload
            return
        yield from self.pieces(batch.slice(0, n // 2))
        yield from self.pieces(batch.slice(n // 2, n))

    def _failure(self, index: int, record: object, size: int) -> Failure:
        error = f"takes {size} bytes, the limit of a frame is {self.max_frame_bytes}"
        return Failure(index, record, error, too_large=True)
