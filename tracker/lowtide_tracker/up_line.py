"""A shard's or a relay's connection to its tracker: the client's half of all that is said, for an asyncio loop."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

from lowtide_tracker.errors import TrackerError
from lowtide_tracker.handshake import HELLO_BYTES, NONCE_BYTES, PROOF_BYTES, ClientHandshake
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.messages import Hello, Message
from lowtide_tracker.tcp import expect_acks, tune
from lowtide_tracker.wire import decode, encode

SLOW_BYTES = 1 << 16
"""Bytes that may wait to be sent; beyond it reports and sums are merged."""


class UpLine(asyncio.Protocol):
    """One connection; another one is made where it has ended.

    Args:
        secret: the job's.
        hello: who this is.
        on_message: called with each message after the handshake; an error that it raises is given to ``on_error``.
        on_error: called with what is wrong with the connection, or with what came on it.
    """

    def __init__(
        self,
        secret: bytes,
        hello: Hello,
        on_message: Callable[["UpLine", Message], None],
        on_error: Callable[[TrackerError], None],
    ) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the connection has ended."""
        self.welcomed = False
        """True if this one takes part, according to the tracker."""
        self.served = False
        """True if it ever did."""
        self.slow = False
        """True if much waits to be sent."""
        self._hello = hello
        self._shake = ClientHandshake(secret, os.urandom(NONCE_BYTES))
        self._greeting = bytearray()
        self._replied = self._proven = False
        self._reader = MessageReader()
        self._on_message = on_message
        self._on_error = on_error

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The tracker greets first."""
        self._transport = cast(asyncio.Transport, transport)
        connection = cast(socket.socket, transport.get_extra_info("socket"))
        tune(connection)
        expect_acks(connection)
        self._transport.set_write_buffer_limits(high=SLOW_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, for whatever reason."""
        self.welcomed = False
        if not self.over.done():
            self.over.set_result(None)

    def pause_writing(self) -> None:
        """The tracker does not keep up."""
        self.slow = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self.slow = False

    def data_received(self, data: bytes) -> None:
        """Handle every message that is complete now."""
        if self._transport.is_closing():
            return
        try:
            if not self._proven:
                data = self._prove(data)
            for kind, payload in self._reader.feed(data) if data else ():
                self._on_message(self, decode(kind, payload))
                if self._transport.is_closing():
                    return
        except TrackerError as error:
            self.close()
            self._on_error(error)

    def send(self, message: Message) -> None:
        """Send a message at once; what the kernel does not take waits in memory."""
        self._transport.write(encode(message))

    def close(self) -> None:
        """Close the connection; what is under way is lost."""
        self._transport.abort()

    def _prove(self, data: bytes) -> bytes:
        """Take the server's half of the handshake; return what follows it."""
        self._greeting += data
        if not self._replied and len(self._greeting) >= HELLO_BYTES:
            self._transport.write(self._shake.reply(bytes(self._greeting[:HELLO_BYTES])))
            self._replied = True
        end = HELLO_BYTES + PROOF_BYTES
        if len(self._greeting) < end:
            return b""
        self._shake.check(bytes(self._greeting[:HELLO_BYTES]), bytes(self._greeting[HELLO_BYTES:end]))
        self._proven = True
        self.send(self._hello)
        return bytes(self._greeting[end:])
