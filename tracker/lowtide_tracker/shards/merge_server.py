"""The sockets of a tracker in shards at the tracker's address: shards, subscribers and workers that listen (R9)."""

import ssl
from collections import deque
from collections.abc import Callable

from lowtide_tracker.errors import ProtocolError, StillRebuilding, TrackerError
from lowtide_tracker.life_server import NoticeServer
from lowtide_tracker.messages import (
    Await,
    CloseFront,
    Join,
    Message,
    Notice,
    OpenFront,
    Order,
    Report,
    Subscribe,
    Unsubscribe,
)
from lowtide_tracker.peer import Peer
from lowtide_tracker.shards.merge import Merge


class MergeServer(NoticeServer):
    """Serves one merge for one life, in one event loop; errors of shards end the life, as `LifeServer` says.

    A shard joins with one connection: it gets all fronts, the orders that it has not followed and all notices, and
    sends its reports. Its second connection replaces the first, of which nothing more is read: what was lost there is
    in the first report of the second, which says everything.

    Args:
        merge: it belongs to the server from now on; others in its loop may ask it and call `announce`.
        shards: how many there are.
        secret: the job's, of at least 16 bytes.
        incarnation: of the life; processes of another one are refused.
        on_fault: called with the error that ended the life, after the peers know it.
        on_notice: called with every notice, as subscribers in other processes get it.
        tls: as of `LifeServer`.
    """

    def __init__(
        self,
        merge: Merge,
        *,
        shards: int,
        secret: bytes,
        incarnation: int,
        on_fault: Callable[[TrackerError], None],
        on_notice: Callable[[Notice], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(secret=secret, incarnation=incarnation, on_fault=on_fault, on_notice=on_notice, tls=tls)
        self.merge = merge
        self.count = shards
        self._shards: dict[int, Peer] = {}
        self._askers: deque[Peer] = deque()
        """By order that is not answered, the first one first: who has asked for it."""

    @property
    def era(self) -> int:
        """The merge's."""
        return self.merge.era

    @property
    def away(self) -> tuple[int, ...]:
        """The shards that are not connected."""
        return tuple(shard for shard in range(self.count) if shard not in self._shards)

    def receive(self, peer: Peer, message: Message) -> None:
        """Handle a message that follows `Hello`; what must wait until the merge knows all comes back later."""
        try:
            match message:
                case Report():
                    self._receive_report(peer, message)
                case Subscribe(segments):
                    self.merge.graph.check(segments or ())
                    self.subscribe(peer, message, self.merge.whole_notice())
                case Unsubscribe():
                    self.unsubscribe(peer)
                case Await(ticks):
                    peer.await_ticks(ticks, {segment: self.merge.min_time(segment) for segment in ticks})
                case OpenFront(front, floor, feeds):
                    self._give(peer, self.merge.open_front(front, floor, feeds))
                case CloseFront(front):
                    self._give(peer, self.merge.close_front(front))
                case Join():
                    self._join(peer, message)
                case _:
                    raise ProtocolError(f"{type(message).__name__} is not a message for a merge, or comes too late")
        except StillRebuilding:
            self._waiting.append((peer, message))

    def left(self, peer: Peer) -> None:
        """A connection has ended; a shard comes back."""
        super().left(peer)
        for shard, other in list(self._shards.items()):
            if other is peer:
                del self._shards[shard]

    def applied(self, worker: int) -> int:
        """The last flush of a worker of which all shards have applied their part."""
        return self.merge.applied(worker)

    def waits_for(self, worker: int) -> bool:
        """A merge is rebuilt from shards alone."""
        return False

    # -- parts -----------------------------------------------------------------------------------------------------

    def _join(self, peer: Peer, join: Join) -> None:
        if join.shards != self.count or join.shard >= self.count:
            raise ProtocolError(f"shard {join.shard} of {join.shards} cannot join a tracker of {self.count} shards")
        before = self._shards.get(join.shard)
        if before is not None:
            before.abort()
        self._shards[join.shard] = peer
        peer.shard = join.shard
        peer.send(self.merge.joined())
        if not join.fresh:
            for order in self.merge.unfollowed(join.shard):
                peer.send(order)
        self.receive(peer, Subscribe())

    def _give(self, asker: Peer, order: Order) -> None:
        self._askers.append(asker)
        for peer in self._shards.values():
            peer.send(order)

    def _receive_report(self, peer: Peer, report: Report) -> None:
        if peer.shard != report.shard:
            raise ProtocolError(f"a report of shard {report.shard} came from {peer}")
        was_rebuilding = bool(self.merge.missing)
        for event in self.merge.receive(report):
            if isinstance(event, Notice):
                self.announce([event])
            else:
                self._askers.popleft().send(event)
        if was_rebuilding and not self.merge.missing:
            self._deal_with_waiting()
