"""One asyncio server of a life, whatever it serves: its door, its peers, and the fault that ends the life."""

import asyncio
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable

from lowtide_tracker.audience import Audience
from lowtide_tracker.backlog import Backlog
from lowtide_tracker.entrance import Entrance, listen
from lowtide_tracker.errors import LifeEnded, Refused, TrackerError
from lowtide_tracker.messages import Fault, Hello, Message, Notice, Subscribe, Welcome
from lowtide_tracker.peer import HOLD_S, Peer
from lowtide_tracker.strangers import BACKLOG
from lowtide_tracker.traffic import Traffic
from lowtide_tracker.unix import address_of
from lowtide_tracker.wire import encode

LOG = logging.getLogger(__name__)
RECEIVE_BYTES = 1 << 16
"""Bytes read of a connection at once."""


class LifeServer(ABC):
    """Serves one life, in one event loop.

    Every error that a worker's or a shard's message raises ends the life: ``on_fault`` is called once with it, every
    peer gets the reason, its connection is closed, and no more are accepted.

    Args:
        secret: the job's, of at least 16 bytes.
        incarnation: of the life; processes of another one are refused.
        on_fault: called with the error that ended the life, after the peers know it.
        tls: what its connections are under, of the server's kind; None for none.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        incarnation: int,
        on_fault: Callable[[TrackerError], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._secret = secret
        self._tls = tls
        self.incarnation = incarnation
        self.error: TrackerError | None = None
        """The error that ended the life."""
        self._on_fault = on_fault
        self._entrance: Entrance | None = None
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._peers: set[Peer] = set()
        self._workers: dict[int, Peer] = {}
        self._traffic: dict[int | None, Traffic] = {None: Traffic()}
        """Per worker that was ever here; None: all others that were, and are gone."""
        self._waiting: list[tuple[Peer, Message]] = []
        """Requests that cannot be answered before the rebuilding is over."""

    async def start(self, host: str = "127.0.0.1", port: int = 0, *, sock: socket.socket | None = None) -> str:
        """Listen, and return the address, ``host:port`` or ``unix:/path``.

        With ``sock`` it takes the connections of a listening socket that it is given, those that wait there first;
        a process that keeps a descriptor of it can give it to the process that replaces this one.
        """
        if sock is not None:
            sock.listen(BACKLOG)
        self._entrance = Entrance(listen(host, port) if sock is None else [sock], self._peer, tls=self._tls)
        self._entrance.open()
        if sock is None:
            return f"{host}:{self._entrance.address[1]}"
        return address_of(sock)

    @property
    def connected(self) -> tuple[int, int]:
        """The number of connected workers, and of all connections."""
        return len(self._workers), len(self._peers)

    @property
    def traffic(self) -> Traffic:
        """The traffic of all connections; O(workers and connections), some 0.5 us for each."""
        total = Traffic()
        for traffic in self._traffic.values():
            total.add(traffic)
        for peer in self._peers:
            if not _is_worker(peer):
                total.add(peer.traffic)
        return total

    def traffic_of(self, worker: int) -> Traffic:
        """Return the traffic of a worker's connections, past ones included."""
        return self._traffic.get(worker, Traffic())

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._entrance is not None:
            await self._entrance.close()
        for peer in list(self._peers):
            peer.abort()

    def end(self, error: TrackerError) -> None:
        """End the life: tell every peer, then ``on_fault``; a second call does nothing."""
        if self.error is not None:
            return
        self.error = error
        LOG.error("the life ends: %s", error)
        for peer in list(self._peers):
            peer.end(Fault(Fault.LIFE_ENDED, str(error)))
        self._on_fault(error)

    # -- what peers call -------------------------------------------------------------------------------------------

    def joined(self, peer: Peer) -> None:
        """A connection has begun."""
        self._peers.add(peer)

    def proved(self, peer: Peer) -> None:
        """The process at the other end knows the secret."""
        assert self._entrance is not None, "it has taken the connection"
        self._entrance.proved(peer)

    def refused(self, why: object) -> None:
        """Somebody was refused who does not know the secret: that is said now and then."""
        assert self._entrance is not None, "it has taken the connection"
        self._entrance.refused(why)

    def left(self, peer: Peer) -> None:
        """A connection has ended. A worker may come back: what it says is numbered."""
        self._peers.discard(peer)
        if not _is_worker(peer):
            self._traffic[None].add(peer.traffic)
        self._waiting = [entry for entry in self._waiting if entry[0] is not peer]
        for worker in [worker for worker, at in self._workers.items() if at is peer]:
            del self._workers[worker]

    def welcome(self, peer: Peer, hello: Hello) -> Welcome | None:
        """Let a process into the life, or raise `Refused`. A worker's earlier connection is closed."""
        if self.error is not None:
            raise LifeEnded(str(self.error))
        if hello.incarnation != self.incarnation:
            fate = "older, and over" if hello.incarnation < self.incarnation else "newer, and has a tracker of its own"
            raise Refused(
                f"{hello.name or 'a client'} is of incarnation {hello.incarnation}, but this tracker serves "
                f"{self.incarnation}: that life is {fate}; end the process"
            )
        if hello.worker is None:
            return Welcome(self.era, 0, report=False)
        self.speaks_for(peer, hello.worker)
        self._traffic.setdefault(hello.worker, Traffic()).add(peer.traffic)
        peer.traffic = self._traffic[hello.worker]
        return Welcome(self.era, self.applied(hello.worker), self.waits_for(hello.worker))

    def speaks_for(self, peer: Peer, worker: int) -> None:
        """Note which connection speaks for a worker; another that did is closed, be it a relay's, and read no more."""
        before = self._workers.get(worker)
        if before is not None and before is not peer:
            before.abort()
        self._workers[worker] = peer

    @property
    @abstractmethod
    def era(self) -> int:
        """The number of such processes in this life so far, this one included."""

    @abstractmethod
    def receive(self, peer: Peer, message: Message) -> None:
        """Handle a message that follows `Hello`; what must wait for the rebuilding's end comes back later."""

    @abstractmethod
    def applied(self, worker: int) -> int:
        """The last flush of a worker that was applied."""

    @abstractmethod
    def waits_for(self, worker: int) -> bool:
        """Return whether this process is being rebuilt and lacks this worker's report."""

    # -- parts -----------------------------------------------------------------------------------------------------

    def _peer(self) -> Peer:
        return Peer(self, self._secret, self._buffer)

    def _deal_with_waiting(self) -> None:
        """The rebuilding is over."""
        waiting, self._waiting = self._waiting, []
        for waiter, asked in waiting:
            waiter.deal_with(asked)


class NoticeServer(LifeServer):
    """One that has subscribers.

    Args:
        secret: as of `LifeServer`.
        incarnation: as of `LifeServer`.
        on_fault: as of `LifeServer`.
        on_notice: called with every notice, as subscribers in other processes get it.
        tls: as of `LifeServer`.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        incarnation: int,
        on_fault: Callable[[TrackerError], None],
        on_notice: Callable[[Notice], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(secret=secret, incarnation=incarnation, on_fault=on_fault, tls=tls)
        self._on_notice = on_notice
        self._announced = Backlog()
        """Min times announced in this turn of the loop."""
        self._due = False
        """True if it will be sent at the turn's end."""
        self._audience: Audience[Peer] = Audience()
        self._late: asyncio.TimerHandle | None = None
        """Sends what was left out of notices, `HOLD_S` after the first of it."""

    def announce(self, notices: list[Notice]) -> None:
        """Send notices to the subscribers, at the end of this turn of the loop: those of one turn go as one."""
        for notice in notices:
            self._announced.add(notice)
            if not self._due:
                self._due = True
                asyncio.get_running_loop().call_soon(self._send_notice)

    def subscribe(self, peer: Peer, named: Subscribe, whole: Notice) -> None:
        """Begin to send a peer notices of what it has named, with one that says everything."""
        self._audience.join(peer, whole, named.segments, global_min=named.global_min)
        peer.subscribe(whole)

    def unsubscribe(self, peer: Peer) -> None:
        """Send a peer no more notices."""
        self._audience.leave(peer)
        self._waiting = [
            (each, asked) for each, asked in self._waiting if each is not peer or not isinstance(asked, Subscribe)
        ]
        peer.unsubscribe()

    def left(self, peer: Peer) -> None:
        """A connection has ended."""
        super().left(peer)
        self._audience.leave(peer)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._late is not None:
            self._late.cancel()
        await super().close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _send_notice(self) -> None:
        notice, self._due = self._announced.take(), False
        if notice is None or self.error is not None:
            return
        data = b""
        for peer, share in self._audience.tell(notice):
            if share is not notice:
                if peer.takes(share):
                    peer.write(encode(share))
            elif peer.takes(notice):
                data = data or encode(notice)
                peer.write(data)
        if self._audience.behind and self._late is None:
            self._late = asyncio.get_running_loop().call_later(HOLD_S, self._send_late)
        if self._on_notice is not None:
            self._on_notice(notice)

    def _send_late(self) -> None:
        self._late = None
        if self.error is not None:
            return
        for peer, share in self._audience.late():
            if peer.takes(share, late=True):
                peer.write(encode(share))


def _is_worker(peer: Peer) -> bool:
    """Return whether a connection's traffic counts as a worker's."""
    return peer.hello is not None and peer.hello.worker is not None
