"""A worker's line to the tracker, for the worker's event loop: connected again while the tracker is restarted.

::

    line.connect()
    ...
    for notice in line.receive():       # when one of its `descriptors` is readable
        effects = core.notice(notice)   # the local tracker gets it here
    line.flush(core.flush())            # every 1 to 2 ms
    if line.fileno() < 0:
        line.mend(time.monotonic())     # with every turn of the loop

To a tracker in shards it is several connections, and broken as soon as one of them is: min time stands anyway.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from lowtide.errors import LifeEnded
from lowtide.process.credentials import client_tls, plain, secured
from lowtide.process.greeting import TRY_EVERY_S, Greeting
from lowtide_tracker import (
    ConnectionLost,
    Flush,
    LocalTracker,
    Notice,
    NoticeGap,
    ShardedClient,
    TrackerClient,
    TrackerError,
    Traffic,
)

MAX_TURN_S = 1.0
"""Limit on what one turn of the loop adds to the time without a line."""
CALL_LIMIT_S = 2.0
"""Limit on a greeted tracker's answer, or on its taking some bytes."""


class TrackerLine:
    """One worker's line to the tracker, broken or not; nothing is lost while it is.

    What the core flushes meanwhile is kept by the local tracker, and sent by the next connection: flush by flush, or
    as one report to a tracker that is being rebuilt (R10). Apart from `connect`, nothing waits for a tracker that is
    not there.

    Args:
        address: The tracker's, as `process/doors.py` has them; the same in every era.
        secret: The job's.
        incarnation: The life.
        local: The worker's local tracker, to which the worker's core passes notices and from which it takes flushes.
        name: The worker's, for people.
        shards: The addresses of the tracker's shards, by number; empty where it is one process.
        reconnect_limit_s: After so long without a line the life is over; turns of the loop count for `MAX_TURN_S` at
            most.
    """

    def __init__(
        self,
        address: str,
        *,
        secret: bytes,
        incarnation: int,
        local: LocalTracker,
        name: str,
        shards: Sequence[str] = (),
        reconnect_limit_s: float = 20.0,
    ) -> None:
        self.address = address
        self.name = name
        self._limit_s = reconnect_limit_s
        self._client: TrackerClient | ShardedClient
        tls = client_tls(secret) if secured(address) else None
        at = [plain(each) for each in (address, *shards)]
        if shards:
            self._client = ShardedClient(
                at[0],
                at[1:],
                secret=secret,
                incarnation=incarnation,
                local=local,
                name=name,
                timeout_s=CALL_LIMIT_S,
                tls=tls,
            )
            self._lines: tuple[TrackerClient, ...] = self._client.lines
        else:
            self._client = TrackerClient(
                at[0],
                secret=secret,
                incarnation=incarnation,
                local=local,
                name=name,
                timeout_s=CALL_LIMIT_S,
                tls=tls,
            )
            self._lines = (self._client,)
        self._greetings = [Greeting(each, tls) for each in at]
        self._why = ""
        """The reason why there is no line."""
        self._broken_s = 0.0
        """For how long `mend` has found no line."""
        self._seen_at: float | None = None
        """The last time that it did."""

    def connect(self) -> None:
        """Connect for the first time, waiting for a tracker that is not there yet.

        Raises:
            LifeEnded: the tracker does not take this worker, or there was none for the limit.
        """
        while not self.mend(time.monotonic()):
            time.sleep(TRY_EVERY_S / 10)

    def listen(self, segments: Iterable[int], *, global_min: bool) -> None:
        """Name the segments whose min time matters: notices leave out the others; without a line, from the next one on.

        Args:
            segments: All of them, also those named before.
            global_min: Whether the global min time matters too: if not, its news may be late.

        Raises:
            LifeEnded: the tracker says so.
        """
        try:
            self._client.subscribe(segments, global_min=global_min)
        except TrackerError as error:
            self._broke(error)

    def fileno(self) -> int:
        """Return the descriptor on which notices come, -1 while the line is broken; `mend` may change it.

        The old one may be closed by then: take it out of a selector when `receive` or `flush` leave -1 here.
        """
        return self._client.fileno() if self._client.connected else -1

    def descriptors(self) -> list[int]:
        """All descriptors of the line, that of notices first; none while it is broken. `receive` reads all."""
        return [line.fileno() for line in self._lines] if self._client.connected else []

    @property
    def traffic(self) -> Traffic:
        """The traffic over all its connections, however often they broke."""
        total = Traffic()
        for line in self._lines:
            total.add(line.traffic)
        return total

    def receive(self) -> list[Notice]:
        """Return the new notices, for the core and its local tracker.

        Raises:
            LifeEnded: the tracker says so.
        """
        if self._client.connected:
            try:
                return self._client.receive()
            except TrackerError as error:
                self._broke(error)
        return self._client.heard()

    def flush(self, flush: Flush | None) -> None:
        """Send what `WorkerCore.flush` has made; without a line, the local tracker keeps it.

        Raises:
            LifeEnded: the tracker says so.
        """
        # Shards that are there get their parts of every flush, whether others are there or not.
        if flush is None or not any([line.connected for line in self._lines]):
            return
        try:
            self._client.send_flush(flush)
        except TrackerError as error:
            self._broke(error)

    def mend(self, now: float) -> bool:
        """Try to connect what has no connection, every `TRY_EVERY_S`; return whether the line is whole.

        Args:
            now: The monotonic time in s.

        Raises:
            LifeEnded: the tracker refuses this worker, or there was no line for too long.
        """
        if self._client.connected:
            return True
        # A loop that was busy for long has not looked for the tracker meanwhile.
        self._broken_s += 0.0 if self._seen_at is None else min(now - self._seen_at, MAX_TURN_S)
        self._seen_at = now
        for line, greeting in zip(self._lines, self._greetings, strict=True):
            if not line.connected:
                self._mend_one(line, greeting, now)
        if all([line.connected for line in self._lines]):
            self._broken_s, self._seen_at = 0.0, None
            return True
        if self._broken_s >= self._limit_s:
            raise LifeEnded(
                f"worker {self.name} has had no connection to {self._absent()} for {self._limit_s:g} s: "
                + (self._why or "it accepts no connection"),
                way_out="see the service's log, then start the job again",
            )
        return False

    def open_front(self, front: int, floor: int, feeds: Sequence[int] | None = None) -> int:
        """Open a front; return the tick below which it must label nothing. Waits for the answer: for rare use.

        Raises:
            ConnectionLost: there is no line, or no answer; ask again once `mend` has restored it.
            LifeEnded: the tracker refuses it.
        """
        try:
            return self._client.open_front(front, floor, feeds)
        except TrackerError as error:
            self._broke(error)
            raise

    def close(self) -> None:
        """Close the line; what was not applied is kept."""
        for greeting in self._greetings:
            greeting.drop("it was closed")
        self._client.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _mend_one(self, line: TrackerClient, greeting: Greeting, now: float) -> None:
        connection = greeting.taken(now)
        if connection is None:
            self._why = greeting.why or self._why
            return
        try:
            line.connect(connection=connection)
        except TrackerError as error:
            self._broke(error)

    def _absent(self) -> str:
        """Name the server that this process has no connection to."""
        at = next(at for at, line in enumerate(self._lines) if not line.connected)
        what = "the tracker" if at == 0 else f"shard {at - 1} of the tracker"
        return f"{what} at {self._greetings[at].address}"

    def _broke(self, error: TrackerError) -> None:
        """Note a broken line; any other error ends the life."""
        if not isinstance(error, ConnectionLost):
            self._client.close()
        if not isinstance(error, ConnectionLost | NoticeGap):
            raise LifeEnded(str(error)) from error
        self._why = str(error)
