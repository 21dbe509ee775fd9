"""The tracker's sockets: one asyncio server around a `Tracker`. Workers and subscribers speak `wire` with it."""

import ssl
from collections.abc import Callable

from lowtide_tracker.errors import ProtocolError, StillRebuilding, TrackerError, UnknownWorker
from lowtide_tracker.life_server import NoticeServer
from lowtide_tracker.messages import (
    Absolute,
    Attach,
    Attached,
    Await,
    CloseFront,
    Flush,
    FrontClosed,
    FrontOpened,
    Message,
    Notice,
    OpenFront,
    Subscribe,
    Sum,
    Unsubscribe,
)
from lowtide_tracker.peer import Peer
from lowtide_tracker.tracker import Tracker


class TrackerServer(NoticeServer):
    """Serves one tracker for one life, in one event loop; errors of workers end the life, as `LifeServer` says.

    Args:
        tracker: it belongs to the server from now on; others in its loop may ask it and call `announce`.
        secret: the job's, of at least 16 bytes.
        incarnation: of the life; processes of another one are refused.
        on_fault: called with the error that ended the life, after the peers know it.
        on_notice: called with every notice, as subscribers in other processes get it.
        tls: as of `LifeServer`.
    """

    def __init__(
        self,
        tracker: Tracker,
        *,
        secret: bytes,
        incarnation: int,
        on_fault: Callable[[TrackerError], None],
        on_notice: Callable[[Notice], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(secret=secret, incarnation=incarnation, on_fault=on_fault, on_notice=on_notice, tls=tls)
        self.tracker = tracker

    @property
    def era(self) -> int:
        """The tracker's."""
        return self.tracker.era

    def receive(self, peer: Peer, message: Message) -> None:  # noqa: C901 - a row for each kind of message
        """Handle a message that follows `Hello`; what must wait until the tracker is rebuilt comes back later."""
        try:
            match message:
                case Flush() | Absolute() | Sum():
                    self._receive_from_worker(peer, message)
                case Attach(worker):
                    peer.send(self._attached(peer, worker))
                case Subscribe(segments):
                    self.tracker.graph.check(segments or ())
                    self.subscribe(peer, message, self.tracker.whole_notice())
                case Unsubscribe():
                    self.unsubscribe(peer)
                case Await(ticks):
                    peer.await_ticks(ticks, {segment: self.tracker.min_time(segment) for segment in ticks})
                case OpenFront(front, floor, feeds):
                    peer.send(FrontOpened(front, self.tracker.open_front(front, floor, feeds)))
                case CloseFront(front):
                    self.announce(self.tracker.close_front(front))
                    peer.send(FrontClosed(front))
                case _:
                    raise ProtocolError(f"{type(message).__name__} is not a message for a tracker, or comes too late")
        except StillRebuilding:
            self._waiting.append((peer, message))
        except UnknownWorker:
            # It came into the register after this tracker knew of it: all it has flushed comes to this one, from
            # the first flush on, and can wait. A gap is found out when the tracker is rebuilt.
            if not isinstance(message, Flush):
                raise
            self._waiting.append((peer, message))

    def applied(self, worker: int) -> int:
        """The last flush of a worker that was applied."""
        return self.tracker.applied(worker)

    def waits_for(self, worker: int) -> bool:
        """Return whether the tracker is being rebuilt and lacks this worker's report."""
        return worker in self.tracker.missing

    # -- parts -----------------------------------------------------------------------------------------------------

    def _attached(self, peer: Peer, worker: int) -> Attached:
        """Let a relay speak for a worker.

        While the tracker is being rebuilt a sum may wait that has flushes of a worker's: then its answer waits, too.
        """
        if self.tracker.missing and not self.waits_for(worker):
            raise StillRebuilding(self.tracker.missing)
        peer.relays = True
        self.speaks_for(peer, worker)
        return Attached(worker, self.applied(worker), self.waits_for(worker))

    def _receive_from_worker(self, peer: Peer, message: Flush | Absolute | Sum) -> None:
        was_rebuilding = bool(self.tracker.missing)
        if was_rebuilding and isinstance(message, Sum):
            raise StillRebuilding(self.tracker.missing)
        peer.count(message)
        self.announce(self.tracker.receive(message))
        peer.summed += isinstance(message, Sum)
        peer.acknowledge()
        if was_rebuilding and not self.tracker.missing:
            self._deal_with_waiting()
