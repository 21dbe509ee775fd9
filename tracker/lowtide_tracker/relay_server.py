"""A relay's sockets: the tracker to the workers of one machine, and one connection to the tracker for all of them."""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable

from lowtide_tracker.errors import ConnectionLost, LifeEnded, NoticeGap, ProtocolError, TrackerError
from lowtide_tracker.handshake import HandshakeError
from lowtide_tracker.life_server import NoticeServer
from lowtide_tracker.messages import (
    Absolute,
    Attach,
    Attached,
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
    Summed,
    Unsubscribe,
    Welcome,
)
from lowtide_tracker.min_times import MinTimes
from lowtide_tracker.peer import Peer
from lowtide_tracker.relay import Relay
from lowtide_tracker.unix import target_of
from lowtide_tracker.up_line import UpLine

LOG = logging.getLogger(__name__)
WELCOME_LIMIT_S = 2.0
"""Limit on the tracker's taking a connection and welcoming it."""
CONNECT_EVERY_S = 0.05
LAST_WORD_S = 2.0
"""Time for workers to read that the life is over."""
POLL_S = 0.01
SLOW_S = 0.002
"""Least time until a line that took too little is looked at again."""


class RelayServer(NoticeServer):
    """Serves workers for as long as its one connection to the tracker lasts; then they connect again.

    A worker meets the tracker's own protocol here, and its flushes are applied when the tracker has applied them. An
    error of a worker's message ends the life, as `LifeServer` says; so does what the tracker says of its end.

    Args:
        tracker: the tracker's address, ``host:port`` or ``unix:/path``.
        secret: the job's, of at least 16 bytes.
        incarnation: of the life; processes of another one are refused.
        flush_s: least time between two sums; the first after a pause goes at once.
        name: for people.
        on_fault: called with the error that ended the life, after the peers know it.
        tracker_tls: what the connection to the tracker is under, of the client's kind; None for nothing.
    """

    def __init__(
        self,
        tracker: str,
        *,
        secret: bytes,
        incarnation: int,
        flush_s: float,
        name: str = "relay",
        on_fault: Callable[[TrackerError], None],
        tracker_tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(secret=secret, incarnation=incarnation, on_fault=on_fault)
        self.relay = Relay()
        self.min_times = MinTimes()
        """As the tracker has announced them."""
        self._tracker, self._tls, self._name, self._flush_s = tracker, tracker_tls, name, flush_s
        self._line: UpLine | None = None
        self._era: int | None = None
        self._welcomed = asyncio.Event()
        self._attaching: dict[int, deque[Peer]] = {}
        """Per worker: its connections for which `Attached` has still to come, in that order."""
        self._asking: deque[Peer] = deque()
        """Those who have asked for a front to be opened or closed, in the order of the answers."""
        self._named = Subscribe((), False)
        """What its subscribers have named, all together: what it asks the tracker for."""
        self._newcomers: dict[Peer, Subscribe] = {}
        """Subscribers that wait for the notice that says everything."""
        self._sum_later: asyncio.Handle | None = None
        self._summed_s = 0.0

    async def start(self, host: str = "127.0.0.1", port: int = 0, *, sock: socket.socket | None = None) -> str:
        """Connect to the tracker, then listen, and return the address.

        Raises:
            ConnectionLost: the tracker took no connection; try again later.
            TrackerError: it refuses this process, or the life is over.
        """
        hello = Hello(self.incarnation, None, self._name)
        try:
            async with asyncio.timeout(WELCOME_LIMIT_S):
                self._line = line = await self._connect(hello)
                line.over.add_done_callback(lambda _: self._welcomed.set())
                await self._welcomed.wait()
        except (OSError, TimeoutError) as error:
            raise ConnectionLost(f"cannot reach the tracker at {self._tracker}: {error}") from error
        if self.error is not None:
            raise self.error
        if self._era is None:
            raise ConnectionLost(f"the tracker at {self._tracker} closed the connection")
        return await super().start(host, port, sock=sock)

    async def over(self) -> None:
        """Wait until the connection to the tracker has ended."""
        assert self._line is not None, "it is started"
        await self._line.over

    async def close(self) -> None:
        """Leave the tracker, stop listening and close every connection."""
        if self._sum_later is not None:
            self._sum_later.cancel()
        if self._line is not None:
            self._line.close()
        await super().close()

    @property
    def era(self) -> int:
        """The tracker's."""
        assert self._era is not None, "a relay serves nobody before the tracker has welcomed it"
        return self._era

    # -- what peers call -------------------------------------------------------------------------------------------

    def welcome(self, peer: Peer, hello: Hello) -> Welcome | None:
        """Let a worker in as soon as the tracker has said which of its flushes it has applied."""
        welcome = super().welcome(peer, hello)
        if hello.worker is None:
            return welcome
        self._attaching.setdefault(hello.worker, deque()).append(peer)
        self._forward(Attach(hello.worker, hello.name))
        return None

    def receive(self, peer: Peer, message: Message) -> None:
        """Handle a message that follows `Hello`."""
        match message:
            case Flush():
                peer.count(message)
                self.relay.take(message)
                self._sum_soon()
            case Absolute():
                peer.count(message)
                self.relay.report(message)
                self._forward(message)
                peer.acknowledge()
            case Subscribe():
                both = _both(self._named, message)
                if both != self._named or not self._newcomers:
                    self._named = both
                    self._forward(both)
                self._newcomers[peer] = message
            case Unsubscribe():
                self._newcomers.pop(peer, None)
                self.unsubscribe(peer)
            case Await(ticks):
                peer.await_ticks(ticks, {segment: self.min_times[segment] for segment in ticks})
            case OpenFront() | CloseFront():
                self._asking.append(peer)
                self._forward(message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a message for a relay, or comes too late")

    def left(self, peer: Peer) -> None:
        """A connection has ended. What its worker has flushed goes on."""
        super().left(peer)
        self._newcomers.pop(peer, None)

    def applied(self, worker: int) -> int:
        """The last flush of a worker that the tracker has applied."""
        return self.relay.applied(worker)

    def waits_for(self, worker: int) -> bool:
        """Only the tracker knows."""
        return False

    # -- the tracker -----------------------------------------------------------------------------------------------

    async def _connect(self, hello: Hello) -> UpLine:
        """Open a line to the tracker (errors: OSError)."""
        loop, (_, target) = asyncio.get_running_loop(), target_of(self._tracker)

        def line() -> UpLine:
            return UpLine(self._secret, hello, self._hear, self._fail)

        if isinstance(target, tuple):
            _, made = await loop.create_connection(line, *target, ssl=self._tls)
        else:
            _, made = await loop.create_unix_connection(line, target)
        return made

    def _hear(self, line: UpLine, message: Message) -> None:
        match message:
            case Welcome(era):
                self._era = era
                self._welcomed.set()
            case Attached(worker, applied, report):
                self._attached(worker, applied, report=report)
            case Summed(number):
                for worker in self.relay.summed(number):
                    if worker in self._workers:
                        self._workers[worker].acknowledge()
            case Notice():
                self._announce(message)
            case FrontOpened() | FrontClosed():
                self._asking.popleft().send(message)
            case Fault(_, text):
                raise LifeEnded(text)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a message for a relay")

    def _attached(self, worker: int, applied: int, *, report: bool) -> None:
        """Welcome a worker; one that has connected once more meanwhile waits for its next answer."""
        waiting = self._attaching.get(worker)
        if not waiting:
            raise ProtocolError(f"the tracker attached worker {worker}, which did not come")
        peer = waiting.popleft()
        self.relay.attach(worker, applied=applied)
        peer.send(Welcome(self.era, applied, report))

    def _announce(self, notice: Notice) -> None:
        """Pass a notice on; one that says everything also to those who wait for such a one."""
        news = self.min_times.hear(notice)
        if notice.after:
            if news:
                self.announce([notice])
            return
        if news:
            self._announced.clear()
        newcomers, self._newcomers = self._newcomers, {}
        for peer, named in {**(self._audience.named if news else {}), **newcomers}.items():
            self.subscribe(peer, named, notice)

    def _fail(self, error: TrackerError) -> None:
        """Handle an error of the line to the tracker: a life that is over, or a broken line."""
        if isinstance(error, ConnectionLost | NoticeGap | HandshakeError):
            LOG.warning("%s: %s", self._name, error)
        else:
            self.end(error)

    # -- sums ------------------------------------------------------------------------------------------------------

    def _forward(self, message: Message) -> None:
        """Send something of a worker's, after all that was flushed here before."""
        line = self._line
        assert line is not None, "it serves nobody before"
        self._send_sum(line)
        line.send(message)

    def _sum_soon(self) -> None:
        """Send a sum at the end of this turn of the loop, or, right after another one, a little later."""
        if self._sum_later is None:
            loop = asyncio.get_running_loop()
            wait_s = self._summed_s + self._flush_s - loop.time()
            self._sum_later = loop.call_soon(self._sum) if wait_s <= 0 else loop.call_later(wait_s, self._sum)

    def _sum(self) -> None:
        loop, line = asyncio.get_running_loop(), self._line
        self._sum_later = None
        self._summed_s = loop.time()
        if line is None or line.over.done() or self.error is not None:
            return
        if line.slow:
            self._sum_later = loop.call_later(max(SLOW_S, self._flush_s), self._sum)
            return
        self._send_sum(line)

    def _send_sum(self, line: UpLine) -> None:
        made = self.relay.sum()
        if made is not None:
            line.send(made)


def _both(one: Subscribe, other: Subscribe) -> Subscribe:
    """Return one subscription to all that two ask for."""
    if one.segments is None or other.segments is None:
        return Subscribe()
    return Subscribe(tuple(sorted({*one.segments, *other.segments})), one.global_min or other.global_min)


async def relay(make: Callable[[], RelayServer], listener: socket.socket) -> TrackerError:
    """Serve at a listening socket, one connection to the tracker after the other; return why the life is over.

    While there is none workers wait in the socket's queue, where nobody greets them.
    """
    while True:
        server, sock = make(), listener.dup()
        try:
            await server.start(sock=sock)
            await server.over()
        except ConnectionLost as error:
            LOG.debug("%s", error)
            sock.close()
            await asyncio.sleep(CONNECT_EVERY_S)
        except TrackerError as error:
            sock.close()
            return error
        finally:
            until_s = asyncio.get_running_loop().time() + LAST_WORD_S
            while server.error and server.connected[1] and asyncio.get_running_loop().time() < until_s:
                await asyncio.sleep(POLL_S)
            await server.close()
        if server.error is not None:
            return server.error
