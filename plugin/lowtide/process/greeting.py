"""A connection that is tried without waiting: it is taken once TLS is agreed on, and the server has greeted."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl

from lowtide_tracker.tls import Connection, TlsConnection
from lowtide_tracker.unix import target_of

TRY_EVERY_S = 0.05
GREETING_LIMIT_S = 2.0
"""Wait for a connection to be accepted before trying another one."""


class Greeting:
    """The connection to one address, until it is given away.

    Args:
        address: `host:port` or `unix:/path`.
        tls: What the connection is under; None for nothing.
    """

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._tls = tls
        self._secured: TlsConnection | None = None
        """TLS on the attempt, from when it is connected."""
        self._family, self._target = target_of(address)
        self.attempt: socket.socket | None = None
        """A connection before any greeting."""
        self.why = ""
        """The reason that there is none."""
        self._tried_at = float("-inf")

    def taken(self, now: float) -> Connection | None:
        """Return the connection if there is something to read on it, so that reading does not block.

        Args:
            now: The monotonic time in s.
        """
        try:
            return self._taken(now)
        except OSError as error:
            self.drop(str(error))
            return None

    def drop(self, why: str) -> None:
        """Give the attempt up."""
        self.why = why
        if self.attempt is not None:
            self.attempt.close()
            self.attempt = self._secured = None

    def _taken(self, now: float) -> Connection | None:
        if self.attempt is not None and now - self._tried_at >= GREETING_LIMIT_S:
            self.drop("it takes no connection")
        if self.attempt is None:
            if now - self._tried_at < TRY_EVERY_S:
                return None
            self._tried_at = now
            self.attempt = socket.socket(self._family)
            self.attempt.setblocking(False)
            code = self.attempt.connect_ex(self._target)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        if not _ready(self.attempt, select.POLLIN if self._tls is None else select.POLLOUT):
            return None
        connection: Connection = self.attempt
        if self._tls is not None:
            connection = self._secured = self._secured or TlsConnection(self.attempt, self._tls)
            try:
                connection.shake()
            except BlockingIOError:
                return None
            if not _ready(self.attempt, select.POLLIN):
                return None
        self.attempt, self._secured, self.why = None, None, ""
        return connection


def _ready(attempt: socket.socket, event: int) -> bool:
    """Return whether there is something to read, or room to write (errors: OSError)."""
    poll = select.poll()
    poll.register(attempt, event)
    if not poll.poll(0):
        return False
    error = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    return True
