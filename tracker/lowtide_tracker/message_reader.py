"""Cutting a stream of bytes into messages: ``u32 length | u8 kind | payload``, length = 1 + payload bytes."""

import struct

from lowtide_tracker.errors import ProtocolError

HEAD = struct.Struct("<IB")
MAX_MESSAGE_BYTES = 1 << 28
"""Length of any message; room for the report of 14 million open sums."""
MAX_HELLO_BYTES = 4096
"""Length of the first message of a connection."""


class MessageReader:
    """Takes what a socket gives and returns whole messages. Cost: a copy of each, two where it came in pieces."""

    def __init__(self, limit_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._rest = bytearray()
        self._needed = 0
        """Bytes without which no message is complete."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The messages that are complete now, as ``(kind, payload)`` for `wire.decode`.

        Raises:
            ProtocolError: a length is zero, or above the limit.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        at, end, messages = 0, len(data), []
        self._needed = HEAD.size
        while end - at >= HEAD.size:
            length, kind = HEAD.unpack_from(data, at)
            if not 1 <= length <= self.limit_bytes:
                raise ProtocolError(
                    f"the peer announced a message of {length} bytes; 1 to {self.limit_bytes} are allowed"
                )
            if end - at < 4 + length:
                self._needed = 4 + length
                break
            messages.append((kind, data[at + HEAD.size : at + 4 + length]))
            at += 4 + length
        self._rest += data[at:]
        return messages
