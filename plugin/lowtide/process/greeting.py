"""A connection that is tried without waiting: it is taken once the server at the other end has greeted."""

from __future__ import annotations

import os
import select
import socket

TRY_EVERY_S = 0.05
GREETING_LIMIT_S = 2.0
"""Wait for a connection to be accepted before trying another one."""


class Greeting:
    """The connection to one address, until it is given away.

    Args:
        address: `host:port`.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self.attempt: socket.socket | None = None
        """A connection before any greeting."""
        self.why = ""
        """The reason that there is none."""
        self._tried_at = float("-inf")

    def taken(self, now: float) -> socket.socket | None:
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
            self.attempt = None

    def _taken(self, now: float) -> socket.socket | None:
        if self.attempt is not None and now - self._tried_at >= GREETING_LIMIT_S:
            self.drop("it takes no connection")
        if self.attempt is None:
            if now - self._tried_at < TRY_EVERY_S:
                return None
            self._tried_at = now
            self.attempt = socket.socket()
            self.attempt.setblocking(False)
            self.attempt.connect_ex(self._target)
        poll = select.poll()
        poll.register(self.attempt, select.POLLIN)
        if not poll.poll(0):
            return None
        error = self.attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        connection, self.attempt, self.why = self.attempt, None, ""
        return connection
