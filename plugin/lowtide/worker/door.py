"""A host's door: who connects proves the job's secret and asks to be taken; nobody is waited for."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lowtide.wire import NONCE_BYTES, ConnectionClosed, tune
from lowtide.worker.link import Link
from lowtide.worker.watch import READ, Watch
from lowtide_tracker.handshake import REPLY_BYTES, HandshakeError, ServerHandshake

LOG = logging.getLogger(__name__)
NEWCOMERS = 8
"""How many may stand at the door, beside one for each worker; one more takes the place of the one that is there longest
without a proof."""
PATIENCE_S = 10.0
"""How long a newcomer may take for its proof, and then again for its question."""

Asked = Callable[[Link, dict[str, Any]], None]


@dataclass(slots=True, eq=False)
class Newcomer:
    """A connection that has not been taken yet.

    Attributes:
        connection: The socket, non-blocking.
        shake: The host's half of the handshake.
        deadline: When it is sent away, in seconds of the monotonic clock.
        reply: What has come of the peer's half of the handshake.
        link: The same connection once the peer has proved the secret.
    """

    connection: socket.socket
    shake: ServerHandshake
    deadline: float
    reply: bytearray = field(default_factory=bytearray)
    link: Link | None = None


class Door:
    """Lets in who knows the secret, and hands over the connection with its first message.

    Args:
        listener: Where tasks connect.
        secret: The job's.
        watch: The loop's.
        asked: Called with the connection, which is no longer watched, and the question.
        patience_s: How long a newcomer may take for each step.

    Attributes:
        workers: How many may be asked for: the tasks of all come at once when an epoch begins.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        watch: Watch,
        asked: Asked,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._watch = watch
        self._asked = asked
        self._patience_s = patience_s
        self.workers = 0
        self._newcomers: list[Newcomer] = []
        listener.setblocking(False)
        watch.set(listener.fileno(), READ, self._accept)

    def tick(self) -> None:
        """Send away who took too long."""
        if not self._newcomers:
            return
        now = time.monotonic()
        for newcomer in [each for each in self._newcomers if each.deadline <= now]:
            self._send_away(newcomer, f"it was silent for {self._patience_s:g} s")

    def _accept(self, _events: int) -> None:
        for _ in range(NEWCOMERS + self.workers):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                LOG.warning("a connection could not be accepted: %s", error)
                return
            self._greet(connection)

    def _greet(self, connection: socket.socket) -> None:
        if len(self._newcomers) >= NEWCOMERS + self.workers:
            longest = min(self._newcomers, key=lambda each: (each.link is not None, each.deadline))
            self._send_away(longest, f"{NEWCOMERS + self.workers} others came")
        shake = ServerHandshake(self._secret, os.urandom(NONCE_BYTES))
        newcomer = Newcomer(connection, shake, time.monotonic() + self._patience_s)
        self._newcomers.append(newcomer)
        connection.setblocking(False)
        self._watch.set(connection.fileno(), READ, partial(self._hear, newcomer))
        try:
            tune(connection)
            connection.send(shake.hello())
        except OSError as error:
            self._send_away(newcomer, str(error))

    def _hear(self, newcomer: Newcomer, _events: int) -> None:
        if newcomer not in self._newcomers:
            return  # Sent away while its bytes were already announced.
        try:
            if newcomer.link is None:
                self._check(newcomer)
            elif messages := newcomer.link.receive():
                self._leave(newcomer)
                self._asked(newcomer.link, json.loads(messages[0][1]))
        except (HandshakeError, ConnectionClosed, OSError) as error:
            self._send_away(newcomer, str(error))

    def _check(self, newcomer: Newcomer) -> None:
        came = newcomer.connection.recv(REPLY_BYTES - len(newcomer.reply))
        if not came:
            raise ConnectionClosed("it closed the connection")
        newcomer.reply += came
        if len(newcomer.reply) == REPLY_BYTES:
            newcomer.connection.send(newcomer.shake.answer(bytes(newcomer.reply)))
            newcomer.link = Link(newcomer.connection)
            newcomer.deadline = time.monotonic() + self._patience_s

    def _leave(self, newcomer: Newcomer) -> None:
        self._newcomers.remove(newcomer)
        self._watch.drop(newcomer.connection.fileno())

    def _send_away(self, newcomer: Newcomer, why: str) -> None:
        LOG.warning("a connection was refused: %s", why)
        if newcomer in self._newcomers:
            self._leave(newcomer)
        newcomer.connection.close()
