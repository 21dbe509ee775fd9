"""Reading a payload from its beginning to its end, exactly."""

import struct
from collections.abc import Iterable
from typing import Any

from lowtide_tracker.errors import ProtocolError

MAX_TEXT_BYTES = 2048
"""A name, or the text of a fault, in UTF-8."""
TEXT = struct.Struct("<H")


class Cursor:
    """A place in a payload, which reading moves on; ``ProtocolError`` where there is too little."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._payload) - self._at

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """One row of integers."""
        return layout.unpack_from(self._payload, self._skip(layout.size))

    def rows(self, layout: struct.Struct, count: int) -> Iterable[tuple[Any, ...]]:
        """Several rows, read when they are iterated over."""
        if not count:
            return ()
        return layout.iter_unpack(memoryview(self._payload)[self._skip(layout.size * count) : self._at])

    def text(self) -> str:
        """A u16 length and so many bytes of UTF-8."""
        (size,) = self.take(TEXT)
        if size > MAX_TEXT_BYTES:
            raise ProtocolError(f"a text of {size} bytes was announced; at most {MAX_TEXT_BYTES} may be")
        start = self._skip(size)
        try:
            return self._payload[start : self._at].decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a text is not UTF-8: {error}") from error

    def end(self) -> None:
        """Everything must have been read."""
        if self.left:
            raise ProtocolError(f"{self.left} bytes are left over behind a message")

    def _skip(self, size: int) -> int:
        """Moves on by a size and returns the place before."""
        start = self._at
        self._at = start + size
        if self._at > len(self._payload):
            raise ProtocolError(f"a message ends {self._at - len(self._payload)} bytes too early")
        return start


def text_bytes(text: str) -> bytes:
    """A text as `Cursor.text` reads it, cut off where it is too long."""
    data = text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore").encode()
    return TEXT.pack(len(data)) + data
