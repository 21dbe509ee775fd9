"""TLS on a socket, for callers that drive it as they drive a plain one: blocking, or by a selector's events.

`asyncio` brings its own; this is for the loops that do not have it. Two laws make a selector see all there is:

- Nothing hides. A read with room for `ROOM_BYTES` returns all that it takes from the kernel, but the beginning of a
  record whose end has not come: what can be read is in the kernel, where a selector sees it.
- Nothing is owed in silence. `send` counts bytes as taken once the kernel has all that was made of them; until then it
  raises `BlockingIOError`, and the caller offers the same bytes again when the socket is writable, as it does anyway.
"""

import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

RECORD_BYTES = 17 << 10
"""More than the longest record of TLS."""
ROOM_BYTES = 2 * RECORD_BYTES
"""Room in a reader's buffer with which nothing hides."""
PIECE_BYTES = 1 << 18
"""Bytes that are encrypted at once."""


class Connection(Protocol):
    """A connection as Lowtide's loops use it; a socket has all of this."""

    def recv(self, size: int, /) -> bytes:
        """Up to so many bytes, as of a socket."""

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        """Receive into a buffer, as a socket does."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Send some of it, as a socket does; what is not counted is offered again."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all, on a blocking connection."""

    def sendmsg(self, buffers: Iterable[bytes | memoryview], /) -> int:
        """Send some of these, as a socket does; what is not counted is offered again."""

    def setsockopt(self, level: int, name: int, value: int | bytes, /) -> None:
        """As of a socket."""

    def getsockopt(self, level: int, name: int, /) -> int:
        """As of a socket."""

    def settimeout(self, limit_s: float | None, /) -> None:
        """As of a socket."""

    def setblocking(self, blocking: bool, /) -> None:
        """As of a socket."""

    def fileno(self) -> int:
        """As of a socket."""

    def close(self) -> None:
        """As of a socket."""

    def __enter__(self) -> Self:
        """Return itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None, /
    ) -> None:
        """Close it."""


class TlsFailed(ConnectionAbortedError):
    """TLS failed: the peer is not of this job, or somebody has changed what was sent. Close the connection."""


class TlsConnection:
    """One connection under TLS; a `Connection`. It belongs to one thread.

    Args:
        connection: the connected socket, which belongs to it from now on; blocking or not.
        context: of the server's or the client's kind.
        server: True at the end that has accepted it.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, *, server: bool = False) -> None:
        self._socket = connection
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=server)
        self._unsent = memoryview(b"")
        """What TLS has made and the kernel has not taken."""
        self._owed = 0
        """The bytes of the caller's that it was made of, which are not counted yet."""
        self._ended = False
        self._buffer = bytearray()
        """Where `recv` decrypts."""

    def shake(self) -> None:
        """Agree on keys, each end with the other's certificate checked.

        Raises:
            BlockingIOError: the socket does not block, and it is not done: call it again when there
                is something to read.
            TlsFailed: the peer has no certificate of this job, or does not speak TLS.
            OSError: the connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._push()
                self._fetch(RECORD_BYTES)
                if self._ended:
                    raise ConnectionResetError("the peer closed the connection instead of agreeing on TLS") from None
            except ssl.SSLError as error:
                raise self._failed(error) from error
            else:
                self._push()
                return

    def recv(self, size: int, /) -> bytes:
        """Up to so many bytes; empty at the end."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)
        return bytes(view[: self.recv_into(view[:size])])

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        """Receive into a buffer; return how many bytes, 0 at the end."""
        view = memoryview(buffer)
        while True:
            count = self._opened(view)
            if count or self._ended:
                return count
            self._fetch(len(view))

    def send(self, data: bytes | memoryview, /) -> int:
        """Send some bytes, and return how many the kernel has taken. After `BlockingIOError` offer the same again."""
        if not self._owed:
            piece = memoryview(data)[:PIECE_BYTES]
            try:
                self._owed = self._tls.write(piece)
            except ssl.SSLError as error:
                raise self._failed(error) from error
        self._push()
        sent, self._owed = self._owed, 0
        return sent

    def sendmsg(self, buffers: Iterable[bytes | memoryview], /) -> int:
        """Send some of these bytes; as `send`."""
        if self._owed:
            return self.send(b"")
        some, size = [], 0
        for each in buffers:
            some.append(each)
            size += len(each)
            if size >= PIECE_BYTES:
                break
        return self.send(some[0] if len(some) == 1 else b"".join(some))

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all of it; the socket blocks."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self.send(rest) :]

    def setsockopt(self, level: int, name: int, value: int | bytes, /) -> None:
        """As of the socket."""
        self._socket.setsockopt(level, name, value)

    def getsockopt(self, level: int, name: int, /) -> int:
        """As of the socket."""
        return self._socket.getsockopt(level, name)

    def settimeout(self, limit_s: float | None, /) -> None:
        """As of the socket; the limit is for each of its calls."""
        self._socket.settimeout(limit_s)

    def setblocking(self, blocking: bool, /) -> None:
        """As of the socket."""
        self._socket.setblocking(blocking)

    def fileno(self) -> int:
        """The socket's."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket. Messages say how long they are, so an end that was forged takes nothing away unnoticed."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None, /
    ) -> None:
        self.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _opened(self, view: memoryview) -> int:
        """Decrypt what has come, as far as there is room."""
        count = 0
        try:
            while count < len(view):
                more: int = self._tls.read(len(view) - count, view[count:])  # type: ignore[assignment]  # typeshed: bytes
                if not more:
                    self._ended = True
                    break
                count += more
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._ended = True
        except ssl.SSLError as error:
            raise self._failed(error) from error
        return count

    def _fetch(self, room: int) -> None:
        """Take bytes from the kernel: no more than there is room for, with the record that has begun to come."""
        data = self._socket.recv(max(room - RECORD_BYTES, RECORD_BYTES))
        if data:
            self._came.write(data)
        else:
            self._ended = True

    def _push(self) -> None:
        """Give the kernel all that TLS has made (errors: BlockingIOError: it does not take all)."""
        while True:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if not self._goes.pending:
                return
            self._unsent = memoryview(self._goes.read())

    def _failed(self, error: ssl.SSLError) -> TlsFailed:
        """Let the peer know, if it can be done at once, and return the error for the caller."""
        with suppress(OSError):
            self._push()
        return TlsFailed(why_failed(error))


def why_failed(error: ssl.SSLError) -> str:
    """Return what a failure of TLS means here."""
    reason = error.reason or str(error)
    if "ALERT" in reason:
        return f"the peer does not take this process's certificate, which is of another start or another job ({reason})"
    if "CERTIFICATE" in reason:
        return f"the peer does not know the job's secret: it has no certificate of this start of the job ({reason})"
    return f"the peer does not speak TLS 1.3, or somebody changes what it sends ({reason})"
