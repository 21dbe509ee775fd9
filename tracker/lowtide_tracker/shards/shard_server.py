"""The sockets of one shard of a tracker: workers connect to it, and it connects to the merge (R9)."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from lowtide_tracker.errors import (
    ConnectionLost,
    LifeEnded,
    ProtocolError,
    Refused,
    TrackerError,
    UnknownWorker,
)
from lowtide_tracker.handshake import HandshakeError
from lowtide_tracker.life_server import LifeServer
from lowtide_tracker.messages import (
    Absolute,
    Fault,
    Flush,
    Hello,
    Join,
    Joined,
    Message,
    Notice,
    Order,
    Welcome,
)
from lowtide_tracker.peer import Peer
from lowtide_tracker.shards.shard import Shard
from lowtide_tracker.unix import target_of
from lowtide_tracker.up_line import UpLine

LOG = logging.getLogger(__name__)
REPORT_EVERY_S = 0.001
"""Least time between two reports; the first after a pause goes at once."""
CONNECT_EVERY_S = 0.05
GREETING_LIMIT_S = 2.0
"""Wait for a connection to be accepted before trying another one."""
MERGE_LIMIT_S = 20.0
"""After so long without a line to the merge the life is over."""


class ShardServer(LifeServer):
    """Serves one shard for one life, in one event loop; errors of workers end the life, as `LifeServer` says.

    It listens once it has joined the merge, which knows the fronts. While there is no line to the merge it
    keeps taking the workers' messages; the first report on the next line says everything.

    Args:
        make: makes the shard, with what the merge has answered; called once.
        shard: its number.
        shards: how many there are.
        merge: where the merge listens, ``host:port`` or ``unix:/path``; the same in every era.
        era: how many processes this shard has had, with this one.
        secret: the job's, of at least 16 bytes.
        incarnation: of the life; processes of another one are refused.
        on_fault: called with the error that ended the life, after the peers know it.
        tls: as of `LifeServer`.
        merge_tls: what the line to the merge is under, of the client's kind; None for nothing.
    """

    def __init__(
        self,
        make: Callable[[Joined], Shard],
        *,
        shard: int,
        shards: int,
        merge: str,
        era: int = 1,
        secret: bytes,
        incarnation: int,
        on_fault: Callable[[TrackerError], None],
        tls: ssl.SSLContext | None = None,
        merge_tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(secret=secret, incarnation=incarnation, on_fault=on_fault, tls=tls)
        self._merge_tls = merge_tls
        self.number, self.count = shard, shards
        self.shard: Shard | None = None
        """None before the merge has answered for the first time."""
        self._make = make
        self._merge = merge
        self._era = era
        self._merge_era = 0
        self._line: UpLine | None = None
        self._joined = asyncio.Event()
        """Set once the merge has answered for the first time."""
        self._queue: list[Order | Notice] = []
        """Messages of the merge while the shard was being rebuilt."""
        self._connecting: asyncio.Task[None] | None = None
        self._report_later: asyncio.TimerHandle | asyncio.Handle | None = None
        self._reported_s = 0.0

    @property
    def era(self) -> int:
        """The number of processes of this shard so far, this one included."""
        return self._era

    @property
    def joined_merge(self) -> bool:
        """True while there is a line to the merge on which this shard takes part."""
        return self._line is not None and self._line.welcomed

    async def start(self, host: str = "127.0.0.1", port: int = 0, *, sock: socket.socket | None = None) -> str:
        """Join the merge, waiting for one that does not run yet, then listen, and return the address.

        Raises:
            TrackerError: the life ended before.
        """
        self._connecting = asyncio.create_task(self._keep_connected())
        self._connecting.add_done_callback(self._look_at_end)
        await self._joined.wait()
        if self.error is not None:
            raise self.error
        return await super().start(host, port, sock=sock)

    async def close(self) -> None:
        """Leave the merge, stop listening and close every connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._report_later is not None:
            self._report_later.cancel()
        await super().close()

    def end(self, error: TrackerError) -> None:
        """As in `LifeServer`; clients that wait for the start need not wait any more."""
        super().end(error)
        self._joined.set()

    def receive(self, peer: Peer, message: Message) -> None:
        """Handle a message that follows `Hello`; what must wait until the shard is rebuilt comes back later."""
        shard = self._known()
        if not isinstance(message, Flush | Absolute):
            raise ProtocolError(f"{type(message).__name__} is not a message for a shard, or comes too late")
        peer.count(message)
        was_rebuilding = bool(shard.missing)
        try:
            shard.receive(message)
        except UnknownWorker:
            # It came into the register after this shard knew of it; see `TrackerServer.receive`.
            if not isinstance(message, Flush):
                raise
            self._waiting.append((peer, message))
            return
        peer.acknowledge()
        if was_rebuilding and not shard.missing:
            self._rebuilt(shard)
        self._report_soon()

    def applied(self, worker: int) -> int:
        """The last part of a worker's that was applied."""
        return self._known().applied(worker)

    def waits_for(self, worker: int) -> bool:
        """Return whether the shard is being rebuilt and lacks this worker's report."""
        return worker in self._known().missing

    # -- the merge -------------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        hello = Hello(self.incarnation, None, f"shard {self.number} of {self.count}")
        lost_s = loop.time()
        while self.error is None:
            try:
                async with asyncio.timeout(GREETING_LIMIT_S):
                    line = await self._connect(hello)
            except (OSError, TimeoutError) as error:
                LOG.debug("shard %d cannot reach the merge: %s", self.number, error)
            else:
                if await self._serves(line):
                    lost_s = loop.time()
            if loop.time() - lost_s >= MERGE_LIMIT_S:
                self.end(
                    ConnectionLost(
                        f"shard {self.number} has had no line to the merge at {self._merge} for {MERGE_LIMIT_S:g} s"
                    )
                )
                return
            await asyncio.sleep(CONNECT_EVERY_S)

    async def _connect(self, hello: Hello) -> UpLine:
        """Open a line to the merge (errors: OSError)."""
        loop, (_, target) = asyncio.get_running_loop(), target_of(self._merge)

        def line() -> UpLine:
            return UpLine(self._secret, hello, self._hear, self._fail)

        if isinstance(target, tuple):
            _, made = await loop.create_connection(line, *target, ssl=self._merge_tls)
        else:
            _, made = await loop.create_unix_connection(line, target)
        return made

    @staticmethod
    def _look_at_end(task: asyncio.Task[None]) -> None:
        """End the life on an unforeseen error: a shard does not run on without a merge."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            what = {"message": "a shard gave up connecting to its merge", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)

    async def _serves(self, line: UpLine) -> bool:
        """Wait for a connection's end; whether it was one on which this shard took part."""
        try:
            await asyncio.wait([line.over], timeout=GREETING_LIMIT_S)
            if line.served:
                await line.over
                LOG.warning("shard %d lost its line to the merge", self.number)
            return line.served
        finally:
            line.close()
            if self._line is line:
                self._line = None

    def _hear(self, line: UpLine, message: Message) -> None:
        match message:
            case Welcome(era):
                if era < self._merge_era:
                    raise ConnectionLost(f"the merge of era {era} is out of date: era {self._merge_era} is known")
                self._merge_era = era
                line.send(Join(self.number, self.count, self.shard is None))
            case Joined():
                if self.shard is None:
                    self.shard = self._make(message)
                self.shard.join(self._merge_era)
                self._queue.clear()
                self._line, line.welcomed, line.served = line, True, True
                self._joined.set()
                self._report_soon()
            case Order() | Notice():
                shard = self._known()
                if shard.missing:
                    self._queue.append(message)
                else:
                    self._obey(shard, message)
            case Fault(code, text):
                raise {Fault.REFUSED: Refused, Fault.LIFE_ENDED: LifeEnded}.get(code, ProtocolError)(text)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a message for a shard")

    def _obey(self, shard: Shard, message: Order | Notice) -> None:
        if isinstance(message, Notice):
            shard.hear(message)
        else:
            shard.order(message)
            self._report_soon()

    def _rebuilt(self, shard: Shard) -> None:
        queue, self._queue = self._queue, []
        for message in queue:
            self._obey(shard, message)
        self._deal_with_waiting()

    def _fail(self, error: TrackerError) -> None:
        """Handle an error of the line to the merge; a broken line is opened again."""
        if isinstance(error, ConnectionLost | HandshakeError):
            LOG.warning("shard %d: %s", self.number, error)
        else:
            self.end(error)

    # -- reports ---------------------------------------------------------------------------------------------------

    def _report_soon(self) -> None:
        """Report at the end of this turn of the loop, or, right after another report, a little later."""
        if self._report_later is None:
            loop = asyncio.get_running_loop()
            wait_s = self._reported_s + REPORT_EVERY_S - loop.time()
            later = loop.call_soon(self._report) if wait_s <= 0 else loop.call_later(wait_s, self._report)
            self._report_later = later

    def _report(self) -> None:
        loop, line = asyncio.get_running_loop(), self._line
        self._report_later = None
        self._reported_s = loop.time()
        if line is None or not line.welcomed or self.error is not None:
            return
        if line.slow:
            self._report_later = loop.call_later(REPORT_EVERY_S, self._report)
            return
        report = self._known().report()
        if report is not None:
            line.send(report)

    def _known(self) -> Shard:
        assert self.shard is not None, "a shard serves nobody before the merge has answered"
        return self.shard
