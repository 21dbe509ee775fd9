"""Accepts the service's connections: those that prove the job's secret may talk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from lowtide.process.wire import NONCE_BYTES, ConnectionClosed, tune
from lowtide.service.workers.peer import Peer
from lowtide_tracker.entrance import Entrance, listen
from lowtide_tracker.handshake import REPLY_BYTES, HandshakeError, ServerHandshake
from lowtide_tracker.tcp import expect_acks

__all__ = ["receive_on"]


def receive_on(host: str, secret: bytes, talk: Callable[[Peer], Awaitable[None]], port: int = 0) -> Entrance:
    """Listen on a port of `host`, and let `talk` serve everybody who knows the secret, until their line breaks.

    By default it is a free port. Those who do not are limited as `lowtide_tracker.strangers` says.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = writer.get_extra_info("socket")
            tune(connection)
            expect_acks(connection)
            shake = ServerHandshake(secret, os.urandom(NONCE_BYTES))
            writer.write(shake.hello())
            writer.write(shake.answer(await reader.readexactly(REPLY_BYTES)))
            entrance.proved(writer.transport.get_protocol())
            await talk(Peer(reader, writer))
        except HandshakeError as error:
            entrance.refused(error)
        except (asyncio.IncompleteReadError, ConnectionClosed, OSError):
            pass  # It has gone, or it was sent away.
        except asyncio.CancelledError:
            pass  # The service ends; there is nobody to tell.
        finally:
            writer.close()

    def protocol() -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), connected, loop=loop)

    entrance = Entrance(listen(host, port), protocol)
    entrance.open()
    return entrance
