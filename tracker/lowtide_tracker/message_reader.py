"""Cutting a stream of bytes into messages: ``u32 length | u8 kind | payload``, length = 1 + payload bytes."""

import struct
from typing import ClassVar

from lowtide_tracker.errors import ProtocolError

HEAD = struct.Struct("<IB")
MAX_MESSAGE_BYTES = 1 << 28
"""Length of any message; room for the report of 14 million open sums."""
MAX_HELLO_BYTES = 4096
"""Length of the first message of a connection."""


class MessageReader:
    """Takes what a socket gives and returns whole messages. Cost: a copy of each, two where it came in pieces."""

    refused: ClassVar[type[Exception]] = ProtocolError
    """Raised for a length that cannot be."""

    def __init__(self, limit_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._rest = bytearray()
        self._needed = 0
        """Bytes without which no message is complete."""

    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[int, bytes]]:
        """The messages that are complete now, as ``(kind, payload)``; of `data` nothing is kept.

        Raises:
            ProtocolError: a length is zero, or above the limit.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data, self._rest = self._rest, bytearray()
        view = data if type(data) is bytes else memoryview(data)  # A slice of anything else is a copy twice over.
        at, end, messages = 0, len(view), list[tuple[int, bytes]]()
        self._needed = HEAD.size
        while end - at >= HEAD.size:
            length, kind = HEAD.unpack_from(view, at)
            if not 1 <= length <= self.limit_bytes:
                raise self.refused(
                    f"the peer announced a message of {length} bytes; 1 to {self.limit_bytes} are allowed"
                )
            if end - at < 4 + length:
                self._needed = 4 + length
                break
            payload = view[at + HEAD.size : at + 4 + length]
            messages.append((kind, payload if type(payload) is bytes else bytes(payload)))
            at += 4 + length
        self._rest += view[at:]
        return messages
