"""A worker's, or a subscriber's, connection to the tracker: a blocking client that a selector's loop can drive."""

import os
import select
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Protocol, TypeVar

from lowtide_tracker.errors import ConnectionLost, LifeEnded, ProtocolError, Refused
from lowtide_tracker.handshake import HELLO_BYTES, NONCE_BYTES, PROOF_BYTES, ClientHandshake
from lowtide_tracker.local_tracker import LocalTracker
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.messages import (
    Absolute,
    Applied,
    Await,
    CloseFront,
    Fault,
    Flush,
    FrontClosed,
    FrontOpened,
    Hello,
    Message,
    Notice,
    OpenFront,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from lowtide_tracker.min_times import MinTimes
from lowtide_tracker.tcp import exactly, expect_acks, ready, tune
from lowtide_tracker.tls import Connection, TlsConnection
from lowtide_tracker.traffic import Traffic
from lowtide_tracker.unix import connected
from lowtide_tracker.wire import decode, encode

ANSWER_TIMEOUT_S = 10.0
"""Limit on the tracker's accepting a connection, reading some bytes or answering a question."""
RECEIVE_BYTES = 1 << 16

Answer = TypeVar("Answer")


class Flushes(Protocol):
    """A source of flushes, with which a connection brings its other end up to date; a `LocalTracker` is one."""

    @property
    def worker(self) -> int:
        """The number of the worker that makes them."""

    def applied(self, number: int) -> None:
        """The other end has applied those up to this number."""

    def unacknowledged(self) -> tuple[Flush, ...]:
        """Those that it may not have applied."""

    def absolute(self) -> Absolute:
        """All in one, for one that is being rebuilt."""


class TrackerClient:
    """One process's line to the tracker.

    Only the caller reconnects: a method that finds the line broken raises `ConnectionLost`, and
    nothing is lost. The caller takes the old `fileno` out of its selector, calls `connect` (to the new address, if the
    tracker was restarted) and puts in the new one; `connect` sends again what was not applied, or reports to a
    tracker that is being rebuilt. `Refused` and `LifeEnded` are final.

    Args:
        address: ``host:port`` or ``unix:/path``.
        secret: the job's.
        incarnation: the life that this process belongs to.
        local: the worker's local tracker, or its part that concerns this line; None for a subscriber that is not a
            worker. It makes flushes; notices go to the caller of `receive`.
        name: for people.
        subscribe: True to receive notices; see `subscribe` for some of them.
        timeout_s: see `ANSWER_TIMEOUT_S`.
        tls: what the connection is under, of the client's kind; None where the tracker is not.
    """

    def __init__(
        self,
        address: str,
        *,
        secret: bytes,
        incarnation: int,
        local: LocalTracker | Flushes | None = None,
        name: str = "",
        subscribe: bool = True,
        timeout_s: float = ANSWER_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.min_times = MinTimes()
        """The notices so far, merged."""
        self.traffic = Traffic()
        """Over all connections."""
        self._secret = secret
        self._hello = Hello(incarnation, None if local is None else local.worker, name)
        self._local = local
        self._subscribed = Subscribe() if subscribe else None
        """What it has asked for, and asks for on each connection; None for no notices."""
        self._timeout_s = timeout_s
        self._tls = tls
        self._era = 0
        """The latest tracker process of the life that has let this one in."""
        self._socket: Connection | None = None
        self._reader = MessageReader()
        self._heard: list[Notice] = []
        self._answers: list[Message] = []
        self._awaited: dict[int, int] | None = None
        """The ticks that this one waits for, as sent on this connection."""

    def connect(self, address: str | None = None, *, connection: Connection | None = None) -> None:
        """Connect, also again, and bring the tracker up to date with this worker's flushes.

        ``connection`` is one to the tracker that was made already, under TLS if that is agreed on, and on which nothing
        was read or sent. To take one only once there is something to read on it is not to wait where nobody takes
        connections just now.

        Raises:
            ConnectionLost: no tracker listens, or the connection ended before `Welcome`; try again later.
            HandshakeError: it speaks another version, or does not know the secret.
            Refused, LifeEnded: this process has no place there.
        """
        self.close()
        self.address = address or self.address
        self._reader, self._answers, self._awaited = MessageReader(), [], None
        try:
            self._open(connection)
        except OSError as error:
            raise self._lost(f"cannot reach the tracker at {self.address}: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def connected(self) -> bool:
        """True while there is a connection, as far as known."""
        return self._socket is not None

    def fileno(self) -> int:
        """The socket's, for a selector; another one after each `connect`."""
        return self._connected().fileno()

    def flush(self) -> bool:
        """Send what the local tracker has summed up, if anything; False if there was nothing. A worker's only.

        The flush is kept until it was applied, so it may well have been made when this raises `ConnectionLost`.
        """
        assert isinstance(self._local, LocalTracker), "only a worker's local tracker makes flushes"
        self._connected()
        flush = self._local.flush()
        if flush is None:
            return False
        self._send_flush(flush)
        return True

    def send_flush(self, flush: Flush, awaited: Iterable[tuple[int, int]] | None = None) -> None:
        """Send a flush that another caller has had the local tracker make, in the order they were made.

        It may be one that `connect` has sent already. Nothing is lost when this raises `ConnectionLost`. With
        ``awaited``, what `await_ticks` would send goes with it: one hand-over instead of two.
        """
        self._send_flush(flush, b"" if awaited is None else self._awaiting(awaited))

    def await_ticks(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Announce the (segment, tick) pairs that this one waits for: it learns at once when one is passed.

        Other notices may come `peer.HOLD_S` late, merged; once one of the ticks was passed, all come at once until this
        is called with other pairs. It sends something only then, so it may be called with every turn of a loop. Before
        the first call on a connection all notices come at once.
        """
        data = self._awaiting(pairs)
        if data:
            self._send(data)

    def receive(self, wait_s: float = 0.0) -> list[Notice]:
        """Process all input, waiting at most so long for some, and return the new notices."""
        if not self._heard:
            self._take_in(wait_s)
        return self.heard()

    def heard(self) -> list[Notice]:
        """The notices that have come and were not returned yet, such as those before the connection broke."""
        heard, self._heard = self._heard, []
        return heard

    def open_front(self, front: int, floor: int, feeds: Iterable[int] | None = None) -> int:
        """Open a front and return the tick below which it must label nothing: its opening floor, to be registered."""
        self._send(encode(OpenFront(front, floor, None if feeds is None else tuple(feeds))))
        answer = self._await(FrontOpened)
        if answer.front != front:
            raise ProtocolError(f"asked the tracker to open front {front}, and it opened front {answer.front}")
        return answer.tick

    def close_front(self, front: int) -> None:
        """Close a front for good. Its owner's acks go first; others ask once the owner's were applied.

        The register has to know that it is closed before (R3): see `README.md`.
        """
        if isinstance(self._local, LocalTracker):
            self._flush_all(self._local)
        self._send(encode(CloseFront(front)))
        self._await(FrontClosed)

    def subscribe(self, segments: Iterable[int] | None = None, *, global_min: bool = True) -> None:
        """Ask for notices from now on, and on later connections; the first one says everything.

        Args:
            segments: Those whose min time matters; the others are left out. None for all.
            global_min: Whether to be sent a notice also because the global min time alone has moved. All have it, but
                if False its news may be `peer.HOLD_S` late.
        """
        self._subscribed = Subscribe(None if segments is None else tuple(sorted(segments)), global_min)
        if self._socket is not None:
            self._send(encode(self._subscribed))

    def unsubscribe(self) -> None:
        """Ask for no more notices; some may still be on their way."""
        self._subscribed = None
        self._send(encode(Unsubscribe()))

    def close(self) -> None:
        """Close the connection; what was not applied is kept."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- parts -----------------------------------------------------------------------------------------------------

    def _awaiting(self, pairs: Iterable[tuple[int, int]]) -> bytes:
        """Return the message that tells the tracker what this client waits for: the smallest tick of each segment."""
        awaited: dict[int, int] = {}
        for segment, tick in pairs:
            awaited[segment] = min(tick, awaited.get(segment, tick))
        if awaited == self._awaited:
            return b""
        self._awaited = awaited
        return encode(Await(awaited))

    def _open(self, connection: Connection | None) -> None:
        if connection is None:
            made = connected(self.address, self._timeout_s)
            connection = made if self._tls is None else self._under_tls(made, self._tls)
        self._socket = connection
        self._socket.settimeout(self._timeout_s)
        tune(self._socket)
        expect_acks(self._socket)
        self._shake(self._socket)
        self._socket.setblocking(False)
        self._send(encode(self._hello))
        welcome = self._await(Welcome)
        if welcome.era < self._era:
            raise self._lost(
                f"the tracker at {self.address} is of era {welcome.era}; one of era {self._era} has replaced it: "
                "ask the driver for its address"
            )
        self._era = welcome.era
        if self._local is not None:
            self._catch_up(self._local, welcome)
        if self._subscribed is not None:
            self._send(encode(self._subscribed))

    @staticmethod
    def _under_tls(connection: socket.socket, tls: ssl.SSLContext) -> TlsConnection:
        secured = TlsConnection(connection, tls)
        try:
            secured.shake()
        except BaseException:
            secured.close()
            raise
        return secured

    def _shake(self, connection: Connection) -> None:
        shake = ClientHandshake(self._secret, os.urandom(NONCE_BYTES))
        hello = exactly(connection, HELLO_BYTES)
        reply = shake.reply(hello)
        connection.sendall(reply)
        shake.check(hello, exactly(connection, PROOF_BYTES))
        self.traffic.bytes_in += HELLO_BYTES + PROOF_BYTES
        self.traffic.bytes_out += len(reply)

    def _catch_up(self, local: Flushes, welcome: Welcome) -> None:
        if welcome.report:
            self._send_flush(local.absolute())
            return
        local.applied(welcome.applied)
        for flush in local.unacknowledged():
            self._send_flush(flush)

    def _flush_all(self, local: LocalTracker) -> None:
        """Flush until nothing is left; it may have to wait until a flush was applied."""
        until = time.monotonic() + self._timeout_s
        while local.unflushed:
            if not self.flush():
                left = until - time.monotonic()
                if left <= 0:
                    raise self._lost(f"the tracker at {self.address} has applied nothing for {self._timeout_s} s")
                self._take_in(left)

    def _connected(self) -> Connection:
        if self._socket is None:
            raise ConnectionLost(f"not connected to the tracker at {self.address}: call connect first")
        return self._socket

    def _lost(self, reason: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"{reason}; connect again: flushes that were not applied are kept")

    def _send_flush(self, flush: Flush | Absolute, more: bytes = b"") -> None:
        self.traffic.flushes += 1
        self.traffic.acks += len(flush.acks)
        self.traffic.messages_out += bool(more)
        self._send(encode(flush) + more)

    def _send(self, data: bytes) -> None:
        """Everything, waiting where the kernel's buffer is full: the tracker reads always."""
        self.traffic.messages_out += 1
        self.traffic.bytes_out += len(data)
        connection, rest = self._connected(), memoryview(data)
        while rest:
            try:
                rest = rest[connection.send(rest) :]
            except BlockingIOError:
                if not ready(connection, select.POLLOUT, self._timeout_s):
                    raise self._lost(
                        f"the tracker at {self.address} has read nothing for {self._timeout_s} s"
                    ) from None
            except OSError as error:
                # It may have said why before it closed the connection.
                self._take_in(0.0)
                raise self._lost(f"the connection to the tracker at {self.address} broke: {error}") from error

    def _take_in(self, wait_s: float) -> None:
        """Read and process the available input; wait for the first byte at most so long."""
        connection = self._connected()
        while True:
            try:
                data = connection.recv(RECEIVE_BYTES)
            except BlockingIOError:
                if wait_s <= 0.0 or not ready(connection, select.POLLIN, wait_s):
                    return
                continue
            except OSError as error:
                raise self._lost(f"the connection to the tracker at {self.address} broke: {error}") from error
            if not data:
                raise self._lost(f"the tracker at {self.address} closed the connection")
            wait_s = 0.0
            self.traffic.bytes_in += len(data)
            for kind, payload in self._reader.feed(data):
                self._take(decode(kind, payload))

    def _take(self, message: Message) -> None:
        self.traffic.messages_in += 1
        match message:
            case Notice():
                self.traffic.notices += 1
                if self.min_times.hear(message):
                    self._heard.append(message)
            case Applied(_, number):
                if self._local is not None:
                    self._local.applied(number)
            case Fault(code, text):
                self.close()
                raise {Fault.REFUSED: Refused, Fault.LIFE_ENDED: LifeEnded}.get(code, ProtocolError)(text)
            case Welcome() | FrontOpened() | FrontClosed():
                self._answers.append(message)
            case _:
                self.close()
                raise ProtocolError(f"{type(message).__name__} is not a message for a client")

    def _await(self, kind: type[Answer]) -> Answer:
        """The tracker's answer of a kind; notices that come before it are kept for `receive`."""
        until = time.monotonic() + self._timeout_s
        while not self._answers:
            left = until - time.monotonic()
            if left <= 0:
                raise self._lost(f"the tracker at {self.address} has not answered for {self._timeout_s} s")
            self._take_in(left)
        answer = self._answers.pop(0)
        if not isinstance(answer, kind):
            self.close()
            raise ProtocolError(f"the tracker answered {type(answer).__name__} to a request for {kind.__name__}")
        return answer
