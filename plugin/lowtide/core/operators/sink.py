"""`write`: records for a barrier, and what becomes of them after it: messages."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from lowtide.core.operators.batch import Batch
from lowtide.core.operators.bundle import Piece
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order import delivered_ms
from lowtide.flow.columns import columns_of
from lowtide.flow.endpoints import KafkaSink
from lowtide.flow.headers import Headers
from lowtide.flow.inference import key_column

Message = tuple[str, int, "bytes | None", "bytes | None", int, "Headers | None"]
"""Topic, partition, key, value, timestamp in ms (`delivered_ms`, R13), headers."""


class WriteNode(Node):
    """Hands records to the barrier before a sink."""

    looks = True

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hand them on."""
        feed.delivers.append((self.vertex.id, batch))


class SinkEncoder:
    """Makes messages of records that a barrier has released.

    Args:
        sink: What is written to.
        slack_ms: How many milliseconds one tick is long.
    """

    def __init__(self, sink: KafkaSink, slack_ms: int) -> None:
        self._topic = sink.topic
        self._format = sink.format
        self._slack_ms = slack_ms
        column = key_column(sink)
        self._key: Callable[[Any], Any] | None = None if column is None else attrgetter(column)
        columns = columns_of(sink.format.record)
        self._headers = columns.headers if columns.has_headers else None

    def encode(self, lane: int, pieces: list[Piece]) -> list[Message]:
        """The records of a lane's pieces as messages, in their order; one call of the encoder per piece."""
        messages: list[Message] = []
        topic, key_of, headers_of = self._topic, self._key, self._headers
        for piece in pieces:
            timestamp = delivered_ms(piece.tick, self._slack_ms)
            for row, value in zip(piece.rows, self._format.encode(piece.rows), strict=True):
                key = None if key_of is None else message_key(key_of(row))
                headers = None if headers_of is None else headers_of(row)
                messages.append((topic, lane, key, value, timestamp, headers))
        return messages


def message_key(value: Any) -> bytes | None:
    """A field's value as a message's key: str in UTF-8, bytes as they are, int in decimal digits, None for none."""
    if value is None or type(value) is bytes:
        return value
    return str(value).encode()
