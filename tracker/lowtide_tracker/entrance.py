"""A listening socket of an asyncio program, at which strangers are limited as `strangers` says."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from lowtide_tracker.strangers import BACKLOG, Refusals, Strangers
from lowtide_tracker.tls import why_failed
from lowtide_tracker.unix import why_refused

LOG = logging.getLogger(__name__)
LOOK_S = 0.25
"""Interval of checks for connections that have gone or stay too long."""
ROOM_POLL_S = 0.02
"""Interval of checks for room while a connection waits."""
RETRY_S = 0.5
"""Pause in accepting after the system could not give a connection."""
LAST_WORD_S = 2.0
"""Time for a peer to end TLS."""

Serve = Callable[[], asyncio.BaseProtocol]


def listen(host: str, port: int = 0) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host, with a long queue.

    Raises:
        OSError: the port is taken, or the host is not this machine's.
    """
    listeners: list[socket.socket] = []
    flags = socket.AI_PASSIVE
    try:
        for family, _, _, _, at in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)):
            listeners.append(socket.create_server((str(at[0]), port), family=family, backlog=BACKLOG))
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


class Entrance:
    """Takes connections, and gives each a protocol, which stays a stranger's until `proved` is called with it.

    Args:
        listeners: belong to it from now on.
        serve: makes a connection's protocol.
        tls: what the connections are encrypted with; its handshake counts as a stranger's time. It begins with the
            client's first byte: its memory (some 300 KiB) is not spent on silent ones.
        strangers: the strangers that may be there at once; fresh, by default of the usual size.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        serve: Serve,
        *,
        tls: ssl.SSLContext | None = None,
        strangers: "Strangers[_Connection] | None" = None,
    ) -> None:
        self._listeners = listeners
        self._serve = serve
        self._tls = tls
        self._strangers: Strangers[_Connection] = Strangers() if strangers is None else strangers
        self._connections: dict[asyncio.BaseProtocol, _Connection] = {}
        """Those of the strangers that have a protocol."""
        self._refusals = Refusals()
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_later: asyncio.TimerHandle | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which it listens first."""
        host, port = self._listeners[0].getsockname()[:2]
        return str(host), int(port)

    def open(self) -> None:
        """Begin to take connections, in the running loop."""
        for listener in self._listeners:
            listener.setblocking(False)
            self._begin(self._accept(listener))

    async def close(self) -> None:
        """Take no more, and send the strangers away; other connections go on."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # A socket must not be closed while the loop watches it.
            await asyncio.wait(list(self._tasks))
        for listener in self._listeners:
            listener.close()
        for stranger in list(self._strangers):
            self._send_away(stranger)
            if stranger.protocol is None:
                stranger.socket.close()
        if self._look_later is not None:
            self._look_later.cancel()

    def proved(self, protocol: asyncio.BaseProtocol) -> None:
        """The peer has proved who it is: nothing here limits its connection any more."""
        connection = self._connections.get(protocol)
        if connection is not None:
            self._forget(connection)

    def refused(self, why: object) -> None:
        """Say in the log, now and then, that somebody was refused."""
        said = self._refusals.add(str(why), asyncio.get_running_loop().time())
        if said:
            LOG.warning("%s", said)

    # -- parts -----------------------------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                # Not asyncio's own way: cancelled at the wrong moment it keeps a connection that it has taken.
                await _readable(listener)
                continue
            except OSError as error:
                self.refused(f"could not accept it: {error}")
                await asyncio.sleep(RETRY_S)
                continue
            connection.setblocking(False)
            why = why_refused(connection)
            if why:
                connection.close()
                self.refused(why)
                await asyncio.sleep(0)
                continue
            try:
                await self._make_room()
            except BaseException:
                connection.close()
                raise
            stranger = _Connection(connection)
            self._strangers.come(stranger, loop.time())
            self._begin(self._take(stranger))
            if self._look_later is None:
                self._look_later = loop.call_later(LOOK_S, self._look)
            await asyncio.sleep(0)  # What others have sent is read before anybody is sent away.

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, stranger: "_Connection") -> None:
        """Give a stranger its protocol; with TLS, when that has been agreed on."""
        limit_s, last_s = None, None
        if self._tls is not None:
            limit_s, last_s = self._strangers.limit_s, LAST_WORD_S
            await stranger.speaks()
        if stranger not in self._strangers:
            stranger.socket.close()
            return
        protocol = self._serve()
        self._connections[protocol] = stranger
        stranger.protocol = protocol
        try:
            stranger.transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                stranger.socket,
                ssl=self._tls,
                ssl_handshake_timeout=limit_s,
                ssl_shutdown_timeout=last_s,
            )
        except OSError as error:
            if stranger in self._strangers:
                self._send_away(stranger)
                if isinstance(error, ssl.SSLError):
                    self.refused(why_failed(error))
            # The frames that it came through refer to it, and to TLS's memory, which would wait for the collector.
            error.__traceback__ = None

    async def _make_room(self) -> None:
        """Wait until one more stranger may be let in, for whom the one that came first may have to go."""
        loop = asyncio.get_running_loop()
        while self._strangers.full:
            self._forget_gone()
            first = self._strangers.yields(loop.time())
            if first is not None:
                self._send_away(first)
                self.refused(f"it had not authenticated, and {self._strangers.most} others were waiting")
            elif self._strangers.full:
                await asyncio.sleep(ROOM_POLL_S)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._look_later = None
        self._forget_gone()
        for stranger in self._strangers.late(loop.time()):
            self._send_away(stranger)
            self.refused(f"it had not authenticated for {self._strangers.limit_s:g} s")
        if self._strangers:
            self._look_later = loop.call_later(LOOK_S, self._look)

    def _forget_gone(self) -> None:
        for stranger in [stranger for stranger in self._strangers if stranger.gone]:
            self._forget(stranger)

    def _forget(self, stranger: "_Connection") -> None:
        self._strangers.leave(stranger)
        if stranger.protocol is not None:
            self._connections.pop(stranger.protocol, None)

    def _send_away(self, stranger: "_Connection") -> None:
        self._forget(stranger)
        stranger.end()


class _Connection:
    """A stranger's connection.

    Attributes:
        socket: its own until it has a protocol.
        protocol: None as long as nothing has come of one that is to be encrypted.
        transport: None as long as TLS is being agreed on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.protocol: asyncio.BaseProtocol | None = None
        self.transport: asyncio.BaseTransport | None = None

    @property
    def gone(self) -> bool:
        """True once its socket is closed, not merely closing."""
        return self.socket.fileno() < 0

    async def speaks(self) -> None:
        """Wait for the first byte, or the end of the connection."""
        await _readable(self.socket)

    def end(self) -> None:
        """Close it now, whatever its protocol waits for."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


async def _readable(waited_for: socket.socket) -> None:
    """Wait until there is something to take of a socket."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(waited_for, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(waited_for)
