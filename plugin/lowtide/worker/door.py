"""A host's door: connections prove the job's secret and ask to be taken; the host waits for none of them.

`lowtide_tracker.strangers` limits strangers; peers that have proved the secret but not asked have limited time too.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
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
from lowtide_tracker.tls import Connection, TlsConnection
from lowtide_tracker.unix import why_refused

LOG = logging.getLogger(__name__)
AT_ONCE = 32
"""The number of connections accepted in one turn of the loop: records wait meanwhile."""
PATIENCE_S = 10.0
"""The time a task has for its request after its proof."""

Asked = Callable[[Link, Attach], None]


@dataclass(slots=True, eq=False)
class Newcomer:
    """A connection that is not taken yet.

    Attributes:
        connection: The socket, non-blocking; under TLS from the peer's first byte on.
        shake: The host's half of the handshake.
        greeted: Whether that has begun: under TLS, not before TLS is agreed on.
        reply: The part of the peer's half of the handshake that has come.
        link: The same connection once the peer has proved the secret.
        deadline: The time at which it is then sent away, in seconds of the monotonic clock.
    """

    connection: Connection
    shake: ServerHandshake
    greeted: bool = False
    reply: bytearray = field(default_factory=bytearray)
    link: Link | None = None
    deadline: float = 0.0


class Door:
    """Lets in peers that know the secret, and hands over the connection with its first message.

    Args:
        listener: The socket to which tasks connect, TCP or Unix; over the latter only this user's are spoken to.
        secret: The job's.
        watch: The loop's.
        asked: Called with the connection, which is no longer watched, and the request.
        strangers: The limit for peers without a proof; by default a new one of the usual size.
        tls: What connections over TCP are under, which counts as a stranger's time; None for nothing.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        watch: Watch,
        asked: Asked,
        strangers: Strangers[Newcomer] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._tls = None if listener.family == socket.AF_UNIX else tls
        self._watch = watch
        self._asked = asked
        self._strangers: Strangers[Newcomer] = Strangers() if strangers is None else strangers
        self._proven: list[Newcomer] = []
        """The connections that have not asked yet."""
        self._refusals = Refusals()
        self._open = True
        """True while the listener is watched: it is not while there is no room."""
        listener.setblocking(False)
        watch.set(listener.fileno(), READ, self._accept)

    def tick(self) -> None:
        """Send away peers that took too long, and let in those that wait for room; call it after every turn."""
        if self._open and not self._strangers and not self._proven:
            return
        now = time.monotonic()
        for newcomer in self._strangers.late(now):
            self._send_away(newcomer, f"it did not prove the secret within {self._strangers.limit_s:g} s")
        for newcomer in [each for each in self._proven if each.deadline <= now]:
            self._send_away(newcomer, f"it sent no request for {PATIENCE_S:g} s")
        if not self._open:
            self._accept()

    def _accept(self, _events: int = READ) -> None:
        """Let in waiting peers, as far as there is room or the oldest stranger has had its time."""
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
            why = why_refused(connection)
            if why:
                self._say(why)
                connection.close()
                continue
            if first is not None:
                self._send_away(first, f"it did not prove the secret, and {strangers.most} others were waiting")
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
            if self._tls is None:
                self._begin(newcomer)
        except OSError as error:
            self._send_away(newcomer, str(error))

    @staticmethod
    def _begin(newcomer: Newcomer) -> None:
        newcomer.connection.send(newcomer.shake.hello())
        newcomer.greeted = True

    def _hear(self, newcomer: Newcomer, _events: int) -> None:
        if newcomer not in self._strangers and newcomer not in self._proven:
            return  # Sent away after its bytes were announced.
        try:
            if not newcomer.greeted:
                self._agree(newcomer)
            elif newcomer.link is None:
                self._check(newcomer)
            elif messages := newcomer.link.receive():
                self._leave(newcomer)
                self._take(newcomer.link, messages[0][1])
        except BlockingIOError:
            return  # Only the beginning of a record has come.
        except (HandshakeError, ConnectionClosed, OSError) as error:
            self._send_away(newcomer, str(error))

    def _agree(self, newcomer: Newcomer) -> None:
        """Go on with TLS, whose memory is not spent on silent ones; some 0.3 ms of the loop's time."""
        connection = newcomer.connection
        if isinstance(connection, socket.socket):
            assert self._tls is not None, "without TLS a newcomer is greeted at once"
            newcomer.connection = connection = TlsConnection(connection, self._tls, server=True)
        assert isinstance(connection, TlsConnection)
        connection.shake()
        self._begin(newcomer)

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
            raise ConnectionClosed("the peer closed the connection")
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
