"""Frames as a worker gets them and sends them: bytes on one side, batches on the other."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lowtide.frames import FrameKind, Header, Inbox, Outbox
from lowtide.operators.batch import Batch, exchange_schema
from lowtide.plan import Plan
from lowtide.schema import schema_of
from lowtide.worker.effects import Frame
from lowtide.worker.figures import Figures

__all__ = ["Intake", "packed"]


class Intake:
    """What comes to one worker from those of the level before.

    Args:
        plan: The plan.
        name: The worker's.
        level: The worker's.
        place: Which of the level's workers it is.
        figures: Told of what comes.
    """

    def __init__(self, plan: Plan, name: str, level: int, place: int, figures: Figures) -> None:
        inputs = [vertex for vertex in plan.exchanges() if vertex.level == level]
        self._schemas = {vertex.id: schema_of(vertex.gives) for vertex in inputs}
        self._arrow = {vertex: exchange_schema(schema) for vertex, schema in self._schemas.items()}
        self._inbox = Inbox(name)
        self._place = place
        self._figures = figures

    def open(self, messages: Sequence[bytes], now_ns: int) -> list[tuple[Frame, int]]:
        """Open those of these messages that have records; each with its size in bytes."""
        return [
            (self._frame(header, message), len(message))
            for message in messages
            if (header := self._count(message, now_ns))
        ]

    def end(self, epoch: int) -> None:
        """Check that the epoch's input was complete."""
        self._inbox.end(epoch)

    def taken(self, sender: int) -> int:
        """How many frames of a sender have come, marks too."""
        return self._inbox.taken(sender)

    def _count(self, message: bytes, now_ns: int) -> Header | None:
        """Return the header of a frame with records, None for a mark."""
        header = Header.unpack(message)
        self._inbox.take(header)
        if header.kind is FrameKind.MARK:
            return None
        self._figures.records_in += header.rows
        self._figures.hops["exchange"].add(now_ns - header.sent_ns, header.rows)
        return header

    def _frame(self, header: Header, message: bytes) -> Frame:
        vertex = header.vertex
        records = pa.py_buffer(memoryview(message)[header.records_at :])
        batch = Batch.from_arrow(self._schemas[vertex], pa.ipc.read_record_batch(records, self._arrow[vertex]))
        return Frame(vertex, self._place, header.value, header.ticks_of(message), batch)


def packed(outbox: Outbox, frame: Frame, now_ns: int) -> bytes:
    """A frame as its target's `Intake` opens it."""
    table = frame.batch.to_arrow()
    head = outbox.records(
        frame.target, frame.vertex, table.num_rows, sent_ns=now_ns, value=frame.value, ticks=frame.ticks
    )
    records: bytes = table.serialize().to_pybytes()
    return head + records
