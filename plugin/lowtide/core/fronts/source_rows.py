"""Messages of one source partition on their way into a flow."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import add

ROW_BYTES = 24
"""The bytes of a message in a front's window besides its key, value and headers: offset, timestamp and label."""


class SourceRows:
    """n messages of one source partition, in the log's order.

    Attributes:
        front: The partition's number in the front register.
        offsets: Ascending.
        timestamps: The log's timestamps in ms.
        keys: None where a message has none.
        values: None for Kafka's tombstones.
        headers: Packed lists of headers as they came; None if there are none.
        ticks: The labels; empty before the front has labelled them.
        topic: The partition's topic.
        partition: The partition's number in the topic.
        size: Bytes of all of them, counting `ROW_BYTES` for each.
    """

    __slots__ = (
        "_ends",
        "front",
        "headers",
        "keys",
        "offsets",
        "partition",
        "size",
        "ticks",
        "timestamps",
        "topic",
        "values",
    )

    def __init__(
        self,
        front: int,
        offsets: list[int],
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[bytes] | None = None,
        ticks: list[int] | None = None,
        *,
        topic: str = "",
        partition: int = 0,
    ) -> None:
        self.front = front
        self.offsets = offsets
        self.timestamps = timestamps
        self.keys = keys
        self.values = values
        self.headers = headers
        self.ticks: list[int] = ticks or []
        self.topic = topic
        self.partition = partition
        self._ends: list[int] | None = None
        if len(offsets) == 1 and headers is None:
            key, value = keys[0], values[0]
            self.size = ROW_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        else:
            ends = self.ends()
            self.size = ends[-1] if ends else 0

    def __len__(self) -> int:
        return len(self.offsets)

    def bytes_of(self, index: int) -> int:
        """Return the bytes of one message, with its `ROW_BYTES`."""
        key, value = self.keys[index], self.values[index]
        size = ROW_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        return size if self.headers is None else size + len(self.headers[index])

    def ends(self) -> list[int]:
        """Return the bytes of the messages up to and including each; made once."""
        ends = self._ends
        if ends is None:
            ends = self._ends = list(accumulate(self._sizes()))
        return ends

    def _sizes(self) -> list[int]:
        """The bytes of each message, as `bytes_of` gives them: in one go, as every batch asks for them."""
        sizes = [
            ROW_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
            for key, value in zip(self.keys, self.values, strict=True)
        ]
        headers = self.headers
        return sizes if headers is None else list(map(add, sizes, map(len, headers)))

    def index_of(self, offset: int) -> int:
        """Return the index of the message with this offset."""
        return bisect_left(self.offsets, offset)

    def slice(self, start: int, stop: int) -> SourceRows:
        """Return messages `start` to `stop`, without the latter, with their labels."""
        if start == 0 and stop == len(self.offsets):
            return self
        return SourceRows(
            self.front,
            self.offsets[start:stop],
            self.timestamps[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            None if self.headers is None else self.headers[start:stop],
            self.ticks[start:stop],
            topic=self.topic,
            partition=self.partition,
        )

    def pick(self, chosen: list[int]) -> SourceRows:
        """Return the messages at these indices, with their labels."""
        return SourceRows(
            self.front,
            [self.offsets[index] for index in chosen],
            [self.timestamps[index] for index in chosen],
            [self.keys[index] for index in chosen],
            [self.values[index] for index in chosen],
            None if self.headers is None else [self.headers[index] for index in chosen],
            [self.ticks[index] for index in chosen] if self.ticks else None,
            topic=self.topic,
            partition=self.partition,
        )
