"""One connection of the service, message by message."""

import asyncio
from contextlib import suppress

from lowtide.assignment.messages import Message, encode
from lowtide.process.wire import HEAD, MAX_MESSAGE_BYTES, ConnectionClosed, Kind, head


class Peer:
    """One connection after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> tuple[int, bytes]:
        """Return the next message as ``(kind, payload)``; raises ``ConnectionClosed`` at the end."""
        try:
            length, kind = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if not 1 <= length <= MAX_MESSAGE_BYTES:
                raise ConnectionClosed(f"the peer announced a message of {length} bytes")
            return kind, await self._reader.readexactly(length - 1)
        except (asyncio.IncompleteReadError, OSError) as gone:
            raise ConnectionClosed(str(gone)) from gone

    async def send(self, kind: Kind, payload: bytes) -> None:
        """Send bytes. ``receive`` notices a peer that has gone."""
        self._writer.write(head(kind, len(payload)) + payload)
        with suppress(OSError):
            await self._writer.drain()

    async def answer(self, message: Message) -> None:
        """Send one message, and wait for room."""
        await self.send(Kind.ASK, encode(message))

    def post(self, message: Message) -> None:
        """Send one message without waiting for room; only for few short ones."""
        data = encode(message)
        self._writer.write(head(Kind.ASK, len(data)) + data)

    def close(self) -> None:
        """Close the connection; the peer sees its end."""
        self._writer.close()
