"""One non-blocking connection of a worker: messages in, bytes out, both bounded."""

from __future__ import annotations

from collections import deque
from itertools import islice

from lowtide.process.wire import ConnectionClosed, Kind, MessageReader, head
from lowtide_tracker.tls import Connection

RECEIVE_BYTES = 1 << 18
BUFFERS_PER_CALL = 64
"""Below the kernel's own limit for one call."""


class Link:
    """Gathers output until `flush`, and keeps what the peer does not take at once.

    Attributes:
        socket: The connection, for a selector.
        unsent_bytes: Bytes that wait to be sent; the caller stops reading while there are too many.
    """

    def __init__(self, connection: Connection) -> None:
        """Take over a connection, which becomes non-blocking."""
        connection.setblocking(False)
        self.socket = connection
        self.unsent_bytes = 0
        self._unsent: deque[bytes | memoryview] = deque()
        self._reader = MessageReader()
        self._received = memoryview(bytearray(RECEIVE_BYTES))

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the messages that are here; raises `ConnectionClosed` at the end of the connection."""
        try:
            count = self.socket.recv_into(self._received)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ConnectionClosed(str(error)) from error
        if not count:
            raise ConnectionClosed("the peer closed the connection")
        return self._reader.feed(self._received[:count])

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Add one message to what waits; it goes out with `flush`."""
        size = sum(map(len, parts))
        first = head(kind, size)
        self._unsent.append(first)
        self._unsent.extend(part for part in parts if part)
        self.unsent_bytes += len(first) + size

    def flush(self) -> None:
        """Send as much of what waits as the peer takes now; raises `ConnectionClosed` when it has gone."""
        try:
            while self._unsent:
                buffers = list(islice(self._unsent, BUFFERS_PER_CALL))
                sent = self.socket.sendmsg(buffers)
                self.unsent_bytes -= sent
                if not self._drop(sent):
                    return
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionClosed(str(error)) from error

    def _drop(self, sent: int) -> bool:
        """Drop the first `sent` bytes of what waits; return False if they end within a buffer."""
        while sent:
            first = self._unsent[0]
            if sent < len(first):
                self._unsent[0] = memoryview(first)[sent:]
                return False
            sent -= len(first)
            self._unsent.popleft()
        return True

    def close(self) -> None:
        """Close the socket; what waits is dropped."""
        self.socket.close()
