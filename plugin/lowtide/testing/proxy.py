"""A proxy before a server that loses, or holds back, one message of its clients: for tests of stores."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal, Self

__all__ = ["Fault", "LossyProxy"]

Fault = Literal["cut before", "cut after", "hold"]
"""The message's fate: it is lost, or its answer is, and the connection with it; or it comes later."""
CHUNK = 1 << 20
LIMIT_S = 60.0


class LossyProxy:
    """Passes all bytes on, until it is armed and the message comes that is to have a fault.

    A message is what one read from a client's connection gives: clients of databases send a statement in one piece.

    Args:
        server: Its `host:port`.

    Attributes:
        address: The `host:port` that clients connect to.
        messages: Messages of clients so far.
        struck: Set once the fault has happened.
    """

    def __init__(self, server: str) -> None:
        self._server = _place(server)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.messages = 0
        self.struck = threading.Event()
        self._fault: Fault | None = None
        self._at = 0
        self._held: tuple[bytes, socket.socket] | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fault: Fault, after: int) -> None:
        """Let a fault happen to the message that comes after so many others."""
        with self._lock:
            self._fault, self._at = fault, self.messages + after

    def release(self) -> None:
        """Let the message through that was held, on its own connection, and wait until the server has answered it.

        Raises:
            AssertionError: none was held.
        """
        assert self._held is not None, "no message was held"
        (message, server), self._held = self._held, None
        server.settimeout(LIMIT_S)
        with suppress(OSError):  # The server may have ended the connection meanwhile, and that is an answer, too.
            server.sendall(message)
            server.shutdown(socket.SHUT_WR)
            while server.recv(CHUNK):
                pass
        server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._listening.close()
        with self._lock:
            for each in self._open:
                each.close()

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        """Pass a server's answers on to a client, until one of the two ends.

        Inherit, and put the proxy's address into answers that name the server's own.
        """
        with suppress(OSError):
            while chunk := server.recv(CHUNK):
                client.sendall(chunk)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._server, LIMIT_S)
            server.settimeout(None)
            with self._lock:
                self._open += [client, server]
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=self.answer, args=(server, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while message := client.recv(CHUNK):
                fault = self._next()
                if fault == "hold":
                    self._held = message, server
                if fault in (None, "cut after"):
                    server.sendall(message)
                if fault is not None:
                    self.struck.set()  # Before the client learns of it: it may look at once.
                    _break(client)
                    if fault == "cut after":
                        server.shutdown(socket.SHUT_WR)  # The server may still answer, to nobody.
                    elif fault == "cut before":
                        _break(server)
                    return
        _break(server)

    def _next(self) -> Fault | None:
        """Count a message, and return its fault."""
        with self._lock:
            self.messages += 1
            if self._fault is None or self.messages <= self._at:
                return None
            fault, self._fault = self._fault, None
            return fault


def _break(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
