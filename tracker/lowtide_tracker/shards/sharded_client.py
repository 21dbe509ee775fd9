"""A worker's connections to a tracker in shards: its flushes go to all shards, its notices come from the merge."""

import ssl
import time
from collections.abc import Iterable, Sequence

from lowtide_tracker.client import ANSWER_TIMEOUT_S, TrackerClient
from lowtide_tracker.errors import ConnectionLost, TrackerError
from lowtide_tracker.local_tracker import LocalTracker
from lowtide_tracker.messages import Absolute, Flush, Notice
from lowtide_tracker.min_times import MinTimes
from lowtide_tracker.shards.sharding import Splitter

POLL_S = 0.001


class _Part:
    """One shard's part of a worker's flushes."""

    def __init__(self, local: LocalTracker, splitter: Splitter, shard: int, numbers: list[int]) -> None:
        self.worker = local.worker
        self._local, self._splitter, self._shard = local, splitter, shard
        self._numbers = numbers
        """Per shard, shared by all parts: the last flush that it has applied."""

    def applied(self, number: int) -> None:
        """The shard has applied its parts up to this number; what all have need not be kept."""
        if number > self._local.flushed:
            self._local.applied(number)  # It says what is wrong.
        self._numbers[self._shard] = max(number, self._numbers[self._shard])
        self._local.applied(min(self._numbers))

    def unacknowledged(self) -> tuple[Flush, ...]:
        """The parts that the shard may not have, whole."""
        self._splitter.forget(self._shard)
        number = self._numbers[self._shard]
        return tuple(
            self._splitter.part(flush, self._shard) for flush in self._local.unacknowledged() if flush.number > number
        )

    def absolute(self) -> Absolute:
        """Return the shard's part of the worker's state."""
        self._splitter.forget(self._shard)
        return self._splitter.report(self._local.absolute(), self._shard)


class _NoFlushes:
    """The merge's part of a worker: its name, and no flushes."""

    def __init__(self, local: LocalTracker) -> None:
        self.worker = local.worker
        self.applied = local.applied

    def unacknowledged(self) -> tuple[Flush, ...]:
        """None go there."""
        return ()

    def absolute(self) -> Absolute:
        """A merge is rebuilt from shards."""
        raise AssertionError("a merge does not ask workers for reports")


class ShardedClient:
    """One worker's lines to a tracker in shards; as `TrackerClient`, it connects again only when asked to.

    A line that breaks raises `ConnectionLost` once the others have what they are to have; ``lines`` are connected again
    one by one, be it by `connect`, and nothing is lost.

    Args:
        address: the merge's, ``host:port``.
        shards: the shards', by number.
        secret: the job's.
        incarnation: the life that this process belongs to.
        local: the worker's local tracker.
        name: for people.
        timeout_s: see `ANSWER_TIMEOUT_S`.
        tls: as of `TrackerClient`.
    """

    def __init__(
        self,
        address: str,
        shards: Sequence[str],
        *,
        secret: bytes,
        incarnation: int,
        local: LocalTracker,
        name: str = "",
        timeout_s: float = ANSWER_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._local = local
        self._timeout_s = timeout_s
        self._splitter = Splitter(len(shards))
        numbers = [0] * len(shards)
        self.merge = TrackerClient(
            address,
            secret=secret,
            incarnation=incarnation,
            local=_NoFlushes(local),
            name=name,
            timeout_s=timeout_s,
            tls=tls,
        )
        self.shards = tuple(
            TrackerClient(
                each,
                secret=secret,
                incarnation=incarnation,
                local=_Part(local, self._splitter, shard, numbers),
                name=name,
                subscribe=False,
                timeout_s=timeout_s,
                tls=tls,
            )
            for shard, each in enumerate(shards)
        )
        self.lines = (self.merge, *self.shards)
        """All of them, the merge's first."""

    @property
    def address(self) -> str:
        """The merge's."""
        return self.merge.address

    @property
    def connected(self) -> bool:
        """True while all lines are connected, as far as known."""
        return all([line.connected for line in self.lines])

    @property
    def min_times(self) -> MinTimes:
        """The min times received."""
        return self.merge.min_times

    def fileno(self) -> int:
        """The descriptor of the line on which notices come."""
        return self.merge.fileno()

    def connect(self) -> None:
        """Connect what is not connected; the errors are those of `TrackerClient.connect`."""
        for line in self.lines:
            if not line.connected:
                line.connect()

    def flush(self) -> bool:
        """Send what the local tracker has summed up, if anything; False if there was nothing."""
        flush = self._local.flush()
        if flush is None:
            return False
        self.send_flush(flush)
        return True

    def send_flush(self, flush: Flush) -> None:
        """Send a flush's parts, in the order they were made; what has no line gets its part from the next one."""
        lost: TrackerError | None = None
        for line, part in zip(self.shards, self._splitter.split(flush), strict=True):
            if not line.connected:
                continue
            try:
                line.send_flush(part)
            except ConnectionLost as error:
                lost = error
        if lost is not None:
            raise lost

    def subscribe(self, segments: Iterable[int] | None = None, *, global_min: bool = True) -> None:
        """As in `TrackerClient`."""
        self.merge.subscribe(segments, global_min=global_min)

    def await_ticks(self, pairs: Iterable[tuple[int, int]]) -> None:
        """As in `TrackerClient`."""
        self.merge.await_ticks(pairs)

    def receive(self, wait_s: float = 0.0) -> list[Notice]:
        """Process all input, waiting at most so long for a notice, and return the new notices."""
        for line in self.shards:
            line.receive()
        return self.merge.receive(wait_s)

    def heard(self) -> list[Notice]:
        """The notices that have come and were not returned yet, such as those before a line broke."""
        return self.merge.heard()

    def open_front(self, front: int, floor: int, feeds: Iterable[int] | None = None) -> int:
        """As in `TrackerClient`; the answer comes once all shards know the front."""
        return self.merge.open_front(front, floor, feeds)

    def close_front(self, front: int) -> None:
        """Close a front for good, once all shards have applied everything that this worker has sent."""
        until = time.monotonic() + self._timeout_s
        while self._local.unflushed or self._local.unacknowledged():
            self.flush()
            for line in self.shards:
                line.receive(POLL_S)
            if time.monotonic() > until:
                raise ConnectionLost(f"the tracker's shards have not applied all for {self._timeout_s:g} s; ask again")
        self.merge.close_front(front)

    def close(self) -> None:
        """Close all lines; what was not applied is kept."""
        for line in self.lines:
            line.close()
