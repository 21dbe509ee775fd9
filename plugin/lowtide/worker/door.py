"""A host's door: connections prove the job's secret and ask to be taken; none is waited for.

Strangers are limited as `lowtide_tracker.strangers` says, and so is the time of those that have proved the secret and
not asked yet.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from lowtide.assignment.messages import Attach, Malformed, Refused, encode, read_attach
from lowtide.process.wire import NONCE_BYTES, ConnectionClosed, Kind, tune
from lowtide.worker.link import Link
from lowtide.worker.watch import READ, Watch
from lowtide_tracker.handshake import REPLY_BYTES, HandshakeError, ServerHandshake
from lowtide_tracker.strangers import Refusals, Strangers

LOG = logging.getLogger(__name__)
AT_ONCE = 32
"""How many are let in before the loop looks up: records wait meanwhile."""
PATIENCE_S = 10.0
"""How long a task may take for its question after its proof."""

Asked = Callable[[Link, Attach], None]


@dataclass(slots=True, eq=False)
class Newcomer:
    """A connection that has not been taken yet.

    Attributes:
        connection: The socket, non-blocking.
        shake: The host's half of the handshake.
        reply: What has come of the peer's half of the handshake.
        link: The same connection once the peer has proved the secret.
        deadline: When it is sent away in that case, in seconds of the monotonic clock.
    """

    connection: socket.socket
    shake: ServerHandshake
    reply: bytearray = field(default_factory=bytearray)
    link: Link | None = None
    deadline: float = 0.0


class Door:
    """Lets in who knows the secret, and hands over the connection with its first message.

    Args:
        listener: Where tasks connect.
        secret: The job's.
        watch: The loop's.
        asked: Called with the connection, which is no longer watched, and the question.
        strangers: Who may stand there without a proof; fresh, by default of the usual size.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        watch: Watch,
        asked: Asked,
        strangers: Strangers[Newcomer] | None = None,
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._watch = watch
        self._asked = asked
        self._strangers: Strangers[Newcomer] = Strangers() if strangers is None else strangers
        self._proven: list[Newcomer] = []
        """Those that have not asked yet."""
        self._refusals = Refusals()
        self._open = True
        """Whether the listener is watched: it is not while there is no room."""
        listener.setblocking(False)
        watch.set(listener.fileno(), READ, self._accept)

    def tick(self) -> None:
        """Send away who took too long, and let in who waits for room; to be called after every turn."""
        if self._open and not self._strangers and not self._proven:
            return
        now = time.monotonic()
        for newcomer in self._strangers.late(now):
            self._send_away(newcomer, f"it had not proved who it is for {self._strangers.limit_s:g} s")
        for newcomer in [each for each in self._proven if each.deadline <= now]:
            self._send_away(newcomer, f"it asked for nothing for {PATIENCE_S:g} s")
        if not self._open:
            self._accept()

    def _accept(self, _events: int = READ) -> None:
        """Let in who waits, as far as there is room or the stranger that came first has had its time."""
        strangers, failed = self._strangers, False
        for _ in range(AT_ONCE):
            first = strangers.yields(time.monotonic())
            if strangers.full and first is None:
                break
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                self._say(f"it could not be accepted: {error}")
                failed = True
                break
            if first is not None:
                self._send_away(first, f"it had not proved who it is, and {strangers.most} others were there")
            self._greet(connection)
        if self._open == (strangers.full or failed):
            self._open = not self._open
            self._watch.set(self._listener.fileno(), READ if self._open else 0, self._accept)

    def _greet(self, connection: socket.socket) -> None:
        shake = ServerHandshake(self._secret, os.urandom(NONCE_BYTES))
        newcomer = Newcomer(connection, shake)
        self._strangers.come(newcomer, time.monotonic())
        connection.setblocking(False)
        self._watch.set(connection.fileno(), READ, partial(self._hear, newcomer))
        try:
            tune(connection)
            connection.send(shake.hello())
        except OSError as error:
            self._send_away(newcomer, str(error))

    def _hear(self, newcomer: Newcomer, _events: int) -> None:
        if newcomer not in self._strangers and newcomer not in self._proven:
            return  # Sent away while its bytes were already announced.
        try:
            if newcomer.link is None:
                self._check(newcomer)
            elif messages := newcomer.link.receive():
                self._leave(newcomer)
                self._take(newcomer.link, messages[0][1])
        except (HandshakeError, ConnectionClosed, OSError) as error:
            self._send_away(newcomer, str(error))

    def _take(self, link: Link, question: bytes) -> None:
        try:
            asked = read_attach(question)
        except Malformed as error:
            link.send(Kind.ATTACH, encode(Refused(str(error))))
            link.flush()
            raise ConnectionClosed(str(error)) from error
        self._asked(link, asked)

    def _check(self, newcomer: Newcomer) -> None:
        came = newcomer.connection.recv(REPLY_BYTES - len(newcomer.reply))
        if not came:
            raise ConnectionClosed("it closed the connection")
        newcomer.reply += came
        if len(newcomer.reply) == REPLY_BYTES:
            newcomer.connection.send(newcomer.shake.answer(bytes(newcomer.reply)))
            newcomer.link = Link(newcomer.connection)
            newcomer.deadline = time.monotonic() + PATIENCE_S
            self._strangers.leave(newcomer)
            self._proven.append(newcomer)

    def _leave(self, newcomer: Newcomer) -> None:
        self._strangers.leave(newcomer)
        if newcomer in self._proven:
            self._proven.remove(newcomer)
        self._watch.drop(newcomer.connection.fileno())

    def _send_away(self, newcomer: Newcomer, why: str) -> None:
        self._say(why)
        self._leave(newcomer)
        newcomer.connection.close()

    def _say(self, why: str) -> None:
        said = self._refusals.add(why, time.monotonic())
        if said:
            LOG.warning("%s", said)
