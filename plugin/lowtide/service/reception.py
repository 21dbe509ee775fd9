"""Accepts the service's connections: peers must prove the job's secret."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence

from lowtide.process.wire import NONCE_BYTES, ConnectionClosed, tune
from lowtide.service.workers.peer import Peer
from lowtide_tracker.entrance import Entrance
from lowtide_tracker.handshake import REPLY_BYTES, HandshakeError, ServerHandshake
from lowtide_tracker.tcp import expect_acks


def receive_on(
    listeners: Sequence[socket.socket],
    secret: bytes,
    talk: Callable[[Peer], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> Entrance:
    """Take the connections of listening sockets; `talk` serves each peer that knows the secret.

    `lowtide_tracker.strangers` limits other peers. Under `tls` they must agree on that first.
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
            pass  # The peer has gone, or was sent away.
        except asyncio.CancelledError:
            pass  # The service ends; there is no one left to answer.
        finally:
            writer.close()

    def protocol() -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), connected, loop=loop)

    entrance = Entrance(listeners, protocol, tls=tls)
    entrance.open()
    return entrance
