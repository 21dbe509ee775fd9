"""Where the service's connections are taken: who proves the job's secret may talk."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from lowtide.service.peer import Peer
from lowtide.wire import NONCE_BYTES, ConnectionClosed, expect_acks, tune
from lowtide_tracker.handshake import REPLY_BYTES, HandshakeError, ServerHandshake

__all__ = ["receive_on"]

LOG = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0


async def receive_on(host: str, secret: bytes, talk: Callable[[Peer], Awaitable[None]]) -> asyncio.Server:
    """Listen on a free port of `host`, and let `talk` serve everybody who knows the secret, until their line breaks."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = writer.get_extra_info("socket")
            tune(connection)
            expect_acks(connection)
            shake = ServerHandshake(secret, os.urandom(NONCE_BYTES))
            writer.write(shake.hello())
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                writer.write(shake.answer(await reader.readexactly(REPLY_BYTES)))
            await talk(Peer(reader, writer))
        except (HandshakeError, TimeoutError, asyncio.IncompleteReadError, ConnectionClosed, OSError) as error:
            if isinstance(error, HandshakeError):
                LOG.warning("a connection was refused: %s", error)
        except asyncio.CancelledError:
            pass  # The service ends; there is nobody to tell.
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, 0)
