"""One connection of the service, message by message."""

import asyncio
import json
from contextlib import suppress
from typing import Any

from lowtide.process.wire import HEAD, MAX_MESSAGE_BYTES, ConnectionClosed, Kind, head


class Peer:
    """One connection after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> tuple[int, bytes]:
        """The next message as ``(kind, payload)``; ``ConnectionClosed`` at the end."""
        try:
            length, kind = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if not 1 <= length <= MAX_MESSAGE_BYTES:
                raise ConnectionClosed(f"a message of {length} bytes was announced")
            return kind, await self._reader.readexactly(length - 1)
        except (asyncio.IncompleteReadError, OSError) as gone:
            raise ConnectionClosed(str(gone)) from gone

    async def send(self, kind: Kind, payload: bytes | dict[str, Any]) -> None:
        """Sends one message; a dict goes as JSON. A peer that has gone is met by ``receive``."""
        data = json.dumps(payload).encode() if isinstance(payload, dict) else payload
        self._writer.write(head(kind, len(data)) + data)
        with suppress(OSError):
            await self._writer.drain()

    def tell(self, message: dict[str, Any]) -> None:
        """Send one message as JSON without waiting for room; for short ones, and few."""
        data = json.dumps(message).encode()
        self._writer.write(head(Kind.ASK, len(data)) + data)

    def close(self) -> None:
        """Close the connection; the peer sees its end."""
        self._writer.close()
