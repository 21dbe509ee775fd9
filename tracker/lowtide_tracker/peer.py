"""One connection of the tracker's server: handshake, `Hello`, then messages."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Protocol, cast

from lowtide_tracker.backlog import Backlog
from lowtide_tracker.errors import LifeEnded, ProtocolError, Refused, TrackerError
from lowtide_tracker.handshake import NONCE_BYTES, REPLY_BYTES, HandshakeError, ServerHandshake
from lowtide_tracker.message_reader import MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, MessageReader
from lowtide_tracker.messages import (
    Absolute,
    Applied,
    Fault,
    Flush,
    Hello,
    Message,
    Notice,
    Sum,
    Summed,
    Welcome,
)
from lowtide_tracker.tcp import expect_acks, tune
from lowtide_tracker.traffic import Traffic
from lowtide_tracker.wire import decode, encode

LOG = logging.getLogger(__name__)
HELLO_TIMEOUT_S = 10.0
"""Limit on a connection's time until its `Hello`; a stranger's may end before."""
SLOW_BYTES = 1 << 16
"""Bytes that may wait for one peer; beyond it, notices for it are merged until it has caught up."""
HOLD_S = 0.05
"""Wait of a notice that passes nothing its subscriber waits for, and of a worker for `Applied`."""
KERNEL_BYTES = 1 << 17
"""Bytes that the kernel may keep for one peer, where nothing can be merged."""
LAST_WORD_S = 2.0
"""Time for a peer to read why its connection is closed."""


class Life(Protocol):
    """The server, as its connections see it."""

    def joined(self, peer: "Peer") -> None:
        """A connection has begun."""

    def proved(self, peer: "Peer") -> None:
        """The process at the other end knows the secret."""

    def refused(self, why: object) -> None:
        """A process that does not know the secret was refused."""

    def left(self, peer: "Peer") -> None:
        """It has ended."""

    def welcome(self, peer: "Peer", hello: Hello) -> Welcome | None:
        """Let a process in; raise `Refused` or `LifeEnded`. None: it gets its welcome later."""

    def receive(self, peer: "Peer", message: Message) -> None:
        """Handle a message that follows `Hello`."""

    def applied(self, worker: int) -> int:
        """The last flush of a worker that was applied."""

    def end(self, error: TrackerError) -> None:
        """End the life."""


class Peer(asyncio.BufferedProtocol):
    """One connection: handshake, `Hello`, then messages.

    Args:
        server: the life it is a part of.
        secret: the job's.
        buffer: where bytes are received; all peers of a server may share it. Without one asyncio takes 256 KiB from the
            kernel for every message and gives them back, which costs more than all the rest.
    """

    def __init__(self, server: Life, secret: bytes, buffer: memoryview) -> None:
        self.hello: Hello | None = None
        self.shard: int | None = None
        """The shard's number, if it is one."""
        self.relays = False
        """True if it speaks for workers that have come to it."""
        self.summed = 0
        """The number of a relay's sums that were applied."""
        self.traffic = Traffic()
        """The connection's; from `Hello` on the worker's, over all its connections."""
        self._server = server
        self._buffer = buffer
        self._shake = ServerHandshake(secret, os.urandom(NONCE_BYTES))
        self._greeting = bytearray()
        """Result of the client's half of the handshake."""
        self._proven = False
        self._reader = MessageReader(MAX_HELLO_BYTES)
        self.subscribed = False
        """True if it gets notices."""
        self._awaited: Mapping[int, int] | None = None
        """The tick that it last asked for, until that is passed: None sends every notice at once."""
        self._slow = False
        self._held = Backlog()
        """Notices that wait: the peer is slow, or does not wait for them."""
        self._owes = False
        """True if flushes were applied that `Applied` has not covered."""
        self._later: asyncio.TimerHandle | None = None
        """Sends what waits, `HOLD_S` after the first of it came."""
        self._over = False

    # -- asyncio's events ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet; the clock runs until `Hello`."""
        self._transport = cast(asyncio.Transport, transport)
        connection = cast(socket.socket, transport.get_extra_info("socket"))
        tune(connection)
        expect_acks(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        self._transport.set_write_buffer_limits(high=SLOW_BYTES)
        self._timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self._late)
        self._server.joined(self)
        self._put(self._shake.hello())

    def connection_lost(self, exc: Exception | None) -> None:
        """End this connection; the peer may come back on another."""
        self._over = True
        self._timer.cancel()
        if self._later is not None:
            self._later.cancel()
        self._server.left(self)

    def pause_writing(self) -> None:
        """The peer does not keep up: notices for it are merged."""
        self._slow = True

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._slow = False
        self._send_held()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every message that is complete now."""
        data = bytes(self._buffer[:nbytes])
        self.traffic.bytes_in += nbytes
        try:
            if not self._proven and not self._over:
                data = self._prove(data)
            for kind, payload in self._reader.feed(data) if data and not self._over else ():
                self.traffic.messages_in += 1
                self._receive(decode(kind, payload))
                if self._over:
                    return
        except TrackerError as error:
            self._fail(error)

    # -- what the server calls -------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send a message at once; what the kernel does not take waits in memory."""
        if not self._over:
            self.traffic.messages_out += 1
            self._put(encode(message))

    def subscribe(self, whole: Notice) -> None:
        """Begin with a notice that says everything."""
        self.subscribed = True
        self._held.clear()
        self._wants(whole.min_times)
        self.traffic.notices += 1
        self.send(whole)

    def unsubscribe(self) -> None:
        """End with the last notice sent."""
        self.subscribed = False
        self._held.clear()

    def await_ticks(self, ticks: Mapping[int, int], min_times: Mapping[int, int]) -> None:
        """Hold notices back until one of these ticks is passed, perhaps by the current min times."""
        self._awaited = ticks
        if self._wants(min_times):
            self._send_held()

    def takes(self, notice: Notice, *, late: bool = False) -> bool:
        """Return whether to write a notice to this peer as it is and now; if not, it waits or is not for it.

        With ``late`` it has waited for `HOLD_S`, and does so for no other reason than that the peer is slow.
        """
        if not self.subscribed or self._over:
            return False
        due = self._wants(notice.min_times) or notice.request is not None or late
        if due and not (self._slow or self._held):
            return True
        self._held.add(notice)
        if due:
            self._send_held()
        else:
            self._send_later()
        return False

    def write(self, data: bytes) -> None:
        """Send a notice that is encoded already."""
        traffic = self.traffic
        traffic.messages_out += 1
        traffic.notices += 1
        self._put(data + self._applied() if self._owes else data)

    def acknowledge(self) -> None:
        """Tell a worker or a relay what was applied: with the next notice, as it only lets it forget that."""
        self._owes = True
        self._send_later()

    def count(self, message: Flush | Absolute | Sum) -> None:
        """Count what a worker has flushed; ``ProtocolError`` unless this is that worker's connection, or a relay's."""
        own = None if self.hello is None else self.hello.worker
        if isinstance(message, Sum | Absolute) and self.relays:
            pass
        elif isinstance(message, Sum) or message.worker != own:
            what = "sum" if isinstance(message, Sum) else f"message of worker {message.worker}"
            raise ProtocolError(f"worker {own} sent a {what}")
        self.traffic.flushes += 1
        self.traffic.acks += len(message.acks)

    def deal_with(self, message: Message) -> None:
        """Handle a message that had to wait, unless the connection is over."""
        if self._over:
            return
        try:
            self._server.receive(self, message)
        except TrackerError as error:
            self._fail(error)

    def end(self, fault: Fault) -> None:
        """Send the reason, and close the connection once the peer has, or has had the time to read it.

        Closing it at once would throw away what was said, where something from the peer is still unread.
        """
        if not self._proven:
            self.abort()  # A stranger gets no reason, and one who is none asks again.
        elif not self._over:
            self.send(fault)
            self._over = True
            if self._transport.can_write_eof():  # Under TLS the peer closes the connection when it has read why.
                self._transport.write_eof()
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(LAST_WORD_S, self._transport.abort)

    def abort(self) -> None:
        """Close the connection without a word."""
        self._over = True
        self._transport.abort()

    # -- parts -----------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """For the log."""
        peer = self._transport.get_extra_info("peername")
        at = f"at {peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "on this machine"
        if self.hello is None:
            return f"a process {at}"
        who = "a subscriber" if self.hello.worker is None else f"worker {self.hello.worker}"
        who = "a relay" if self.relays else who if self.shard is None else f"shard {self.shard}"
        return f"{who} ({self.hello.name or 'without a name'}) {at}"

    def _late(self) -> None:
        if self._proven:
            LOG.warning("closing the connection of %s: it has not identified itself for %s s", self, HELLO_TIMEOUT_S)
        self.abort()

    def _prove(self, data: bytes) -> bytes:
        """Take the client's half of the handshake; return what follows it."""
        self._greeting += data
        if len(self._greeting) < REPLY_BYTES:
            return b""
        self._put(self._shake.answer(bytes(self._greeting[:REPLY_BYTES])))
        self._proven = True
        self._server.proved(self)
        return bytes(self._greeting[REPLY_BYTES:])

    def _receive(self, message: Message) -> None:
        if self.hello is not None:
            self._server.receive(self, message)
            return
        if not isinstance(message, Hello):
            raise ProtocolError(f"a connection must begin with Hello, not with {type(message).__name__}")
        welcome = self._server.welcome(self, message)
        self.hello = message
        if welcome is not None:
            self.send(welcome)
        self._reader.limit_bytes = MAX_MESSAGE_BYTES
        self._timer.cancel()

    def _wants(self, min_times: Mapping[int, int]) -> bool:
        """Return whether the peer gets everything at once, which may begin now: min times pass what it waits for."""
        awaited = self._awaited
        if awaited and any(min_times[segment] > awaited[segment] for segment in awaited.keys() & min_times.keys()):
            self._awaited = None
        return self._awaited is None

    def _send_held(self) -> None:
        """Send the notices that wait as one, if the peer keeps up."""
        held = None if self._slow or self._over else self._held.take()
        if held is not None:
            self.write(encode(held))

    def _send_later(self) -> None:
        """Make sure that nothing waits for more than `HOLD_S`."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(HOLD_S, self._send_now)

    def _send_now(self) -> None:
        self._later = None
        self._send_held()
        if self._owes and not self._over:
            self._put(self._applied())

    def _put(self, data: bytes) -> None:
        self.traffic.bytes_out += len(data)
        self._transport.write(data)

    def _applied(self) -> bytes:
        """The bytes of `Applied`, or of a relay's `Summed`, if it is due."""
        if not self._owes or self.hello is None or (self.hello.worker is None and not self.relays):
            return b""
        self._owes = False
        self.traffic.messages_out += 1
        if self.hello.worker is None:
            return encode(Summed(self.summed))
        return encode(Applied(self.hello.worker, self._server.applied(self.hello.worker)))

    def _fail(self, error: TrackerError) -> None:
        """Handle an error: a worker's or a shard's ends the life, another peer's its own connection."""
        match error:
            case HandshakeError():
                self._server.refused(f"{self}: {error}")
                self.abort()
            case Refused():
                LOG.warning("refused %s: %s", self, error)
                self.end(Fault(Fault.REFUSED, str(error)))
            case LifeEnded():
                self.end(Fault(Fault.LIFE_ENDED, str(error)))
            case _ if self.relays or self.shard is not None or (self.hello and self.hello.worker is not None):
                LOG.error("%s sent a message that ends the life", self)
                self._server.end(error)
            case _:
                LOG.warning("closing the connection of %s: %s", self, error)
                self.end(Fault(Fault.PROTOCOL, str(error)))
