"""One non-blocking connection of a worker: messages in, bytes out, both bounded."""

import socket
from collections import deque

from lowtide.wire import ConnectionClosed, Kind, MessageReader, head

RECEIVE_BYTES = 1 << 18


class Link:
    """Buffers what the peer does not take at once; the caller stops reading while too much is buffered."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.unsent_bytes = 0
        self._unsent: deque[memoryview] = deque()
        self._reader = MessageReader()

    def receive(self) -> list[tuple[int, bytes]]:
        """The messages that are here; ``ConnectionClosed`` at the end of the connection."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ConnectionClosed(str(error)) from error
        if not data:
            raise ConnectionClosed("the peer closed the connection")
        return self._reader.feed(data)

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Sends one message, or as much of it as the peer takes now; the rest goes out with ``flush``."""
        message = b"".join((head(kind, sum(map(len, parts))), *parts))
        self._unsent.append(memoryview(message))
        self.unsent_bytes += len(message)
        if len(self._unsent) == 1:
            self.flush()

    def flush(self) -> None:
        """Sends what waits; ``ConnectionClosed`` when the peer has gone."""
        try:
            while self._unsent:
                sent = self.socket.send(self._unsent[0])
                self.unsent_bytes -= sent
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                    return
                self._unsent.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionClosed(str(error)) from error

    def flush_all(self) -> None:
        """Send everything that waits, and wait for it; errors as `flush`."""
        self.socket.setblocking(True)
        self.flush()
        self.socket.setblocking(False)

    def close(self) -> None:
        """Closes the socket; what waits is dropped."""
        self.socket.close()
