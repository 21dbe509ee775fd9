"""`write`: records for a barrier, and what becomes of them after it: messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from lowtide.core.operators.faults.failure import Failure, NotWritable, astray, unwritable
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import delivered_ms
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.columns import columns_of
from lowtide.flow.schema.headers import Headers
from lowtide.flow.steps.steps import Write

Message = tuple[str, int, "bytes | None", "bytes | None", int, "Headers | None"]
"""Topic, partition, key, value, timestamp in ms (`delivered_ms`, R13), headers."""


class WriteNode(Node):
    """Hands records to the barrier before a sink; those that its format cannot write fail here, and can be taken back.

    A format that can write every record of its type costs nothing; else it is a look at each.
    """

    def __init__(self, vertex: Vertex[Write], units: int) -> None:
        super().__init__(vertex)
        self._units = units
        self._sink = vertex.step.sink
        rule = self._sink.writable.rule
        self._fits = None if rule is None else rule.fits

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hand on what can be written."""
        fits = self._fits
        if fits is not None:
            for row in batch.rows:
                if not fits(row):
                    batch = self._writable(batch, feed)
                    break
        if self._sink.by_key and batch.ats:
            batch = self._at_home(batch, feed)
        if batch.ats:
            feed.delivers.append((self.vertex.id, batch))

    def _writable(self, batch: Batch, feed: Feed) -> Batch:
        """The records that can be written, perhaps none."""
        found = (unwritable(index, row, self._sink) for index, row in enumerate(batch.rows))
        return self.bury(batch, [failure for failure in found if failure is not None], feed)

    def _at_home(self, batch: Batch, feed: Feed) -> Batch:
        """The records that came by their key; one that did not is a fault of the flow."""
        sink, units = self._sink, self._units
        places = zip(batch.rows, batch.units, strict=True)
        found = [astray(index, row, sink, unit, units) for index, (row, unit) in enumerate(places)]
        failures = [failure for failure in found if failure is not None]
        return self.bury(batch, failures, feed) if failures else batch


class SinkEncoder:
    """Makes Kafka's messages of records that a barrier has released.

    Args:
        vertex: What writes.
        slack_ms: How many milliseconds one tick is long.
        partition_of_unit: By hash unit its partition; None where a lane has the partition of its number.
    """

    def __init__(self, vertex: Vertex[Write], slack_ms: int, partition_of_unit: Sequence[int] | None = None) -> None:
        sink = vertex.step.sink
        assert isinstance(sink, KafkaSink), "other stores bring their encoder"
        self._vertex = vertex
        self._topic = sink.topic
        self._format = sink.format
        self._slack_ms = slack_ms
        self._partition_of_unit = partition_of_unit
        column = sink.message_column
        self._key: Callable[[Any], Any] | None = None if column is None else attrgetter(column)
        columns = columns_of(sink.format.record)
        self._headers = columns.headers if columns.has_headers else None

    def encode(self, lane: int, pieces: list[Piece]) -> list[Message]:
        """The records of a lane's pieces as messages, in their order; one call of the encoder per piece.

        Raises:
            NotWritable: the format fails with a record that its rules let pass: they lack one.
        """
        messages: list[Message] = []
        topic, key_of, headers_of, places = self._topic, self._key, self._headers, self._partition_of_unit
        for piece in pieces:
            timestamp = delivered_ms(piece.tick, self._slack_ms)
            try:
                values = self._format.encode(piece.rows)
            except Exception as error:
                raise self._first_fault(piece) or error from error
            partitions = [lane] * len(piece) if places is None else [places[unit] for unit in piece.units]
            if key_of is None and headers_of is None:
                messages += [
                    (topic, partition, None, value, timestamp, None)
                    for partition, value in zip(partitions, values, strict=True)
                ]
                continue
            for row, value, partition in zip(piece.rows, values, partitions, strict=True):
                key = None if key_of is None else message_key(key_of(row))
                headers = None if headers_of is None else headers_of(row)
                messages.append((topic, partition, key, value, timestamp, headers))
        return messages

    def _first_fault(self, piece: Piece) -> NotWritable | None:
        """Explain the first record that cannot be encoded."""
        for index, (at, row) in enumerate(zip(piece.ats, piece.rows, strict=True)):
            try:
                self._format.encode([row])
            except Exception as error:  # noqa: BLE001 - whatever a codec raises
                what = f"cannot be written as {self._format}: {type(error).__name__}: {error}"
                report = "give another value in the step before the sink, and report this: lowtide check should find it"
                return NotWritable(self._vertex, at, Failure(index, row, what, way_out=report))
        return None


def message_key(value: Any) -> bytes | None:
    """A field's value as a message's key: str in UTF-8, bytes as they are, int in decimal digits, None for none."""
    if value is None or type(value) is bytes:
        return value
    return str(value).encode()
