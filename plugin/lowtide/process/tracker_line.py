"""A worker's line to the tracker, for the worker's event loop: connected again while the tracker is restarted.

::

    line.connect()
    ...
    for notice in line.receive():       # when its `fileno` is readable
        effects = core.notice(notice)   # the local tracker hears of it here
    line.flush(core.flush())            # every 1 to 2 ms
    if line.fileno() < 0:
        line.mend(time.monotonic())     # with every turn of the loop
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Sequence

from lowtide.errors import LifeEnded
from lowtide_tracker import (
    ConnectionLost,
    Flush,
    LocalTracker,
    Notice,
    NoticeGap,
    TrackerClient,
    TrackerError,
    Traffic,
)

__all__ = ["TrackerLine"]

MEND_EVERY_S = 0.05
GREETING_LIMIT_S = 2.0
"""How long a connection may wait to be taken before another one is tried."""
MAX_TURN_S = 1.0
"""What one turn of the loop may add to the time for which there was no line."""
CALL_LIMIT_S = 2.0
"""How long a tracker that has greeted may take to answer, or to take some bytes."""


class TrackerLine:
    """One worker's connection to the tracker, broken or not; nothing is lost while it is.

    What the core flushes meanwhile is kept by the local tracker, and sent by the next connection: flush by flush, or
    as one report to a tracker that is being rebuilt (R10). Apart from `connect`, nothing waits for a tracker that is
    not there.

    Args:
        address: The tracker's, ``host:port``; the same in every era.
        secret: The job's.
        incarnation: The life.
        local: The worker's local tracker, which the worker's core lets hear notices and make flushes.
        name: The worker's, for people.
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
        reconnect_limit_s: float = 20.0,
    ) -> None:
        self.address = address
        self.name = name
        self._limit_s = reconnect_limit_s
        self._client = TrackerClient(
            address,
            secret=secret,
            incarnation=incarnation,
            local=local,
            name=name,
            timeout_s=CALL_LIMIT_S,
            tell_local=False,
        )
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._why = ""
        """Why there is no line."""
        self._broken_s = 0.0
        """For how long `mend` has seen it so."""
        self._seen_at: float | None = None
        """When it did last."""
        self._attempt: socket.socket | None = None
        """A connection that the tracker has not greeted yet."""
        self._tried_at = float("-inf")

    def connect(self) -> None:
        """Connect for the first time, waiting for a tracker that is not there yet.

        Raises:
            LifeEnded: the tracker does not take this worker, or there was none for the limit.
        """
        while not self.mend(time.monotonic()):
            time.sleep(MEND_EVERY_S / 10)

    def fileno(self) -> int:
        """The line's descriptor, -1 while there is none; a new one once `mend` has connected.

        The old one is closed by then: take it out of a selector when `receive` or `flush` leave -1 here.
        """
        return self._client.fileno() if self._client.connected else -1

    @property
    def traffic(self) -> Traffic:
        """What has gone over it, however often it broke."""
        return self._client.traffic

    def receive(self) -> list[Notice]:
        """Return the notices that have come and are new, for the core and its local tracker to hear.

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
        if flush is None or not self._client.connected:
            return
        try:
            self._client.send_flush(flush)
        except TrackerError as error:
            self._broke(error)

    def mend(self, now: float) -> bool:
        """Try to connect if there is no line, every `MEND_EVERY_S`; return whether there is one.

        Args:
            now: The monotonic time in s.

        Raises:
            LifeEnded: the tracker does not take this worker (any more), or there was no line for too long.
        """
        if self._client.connected:
            return True
        # A loop that was busy for long has not looked for the tracker meanwhile.
        self._broken_s += 0.0 if self._seen_at is None else min(now - self._seen_at, MAX_TURN_S)
        self._seen_at = now
        try:
            if self._greeted(now):
                connection, self._attempt = self._attempt, None
                self._client.connect(connection=connection)
                self._broken_s, self._seen_at = 0.0, None
                return True
        except OSError as error:
            self._drop_attempt(str(error))
        except TrackerError as error:
            self._broke(error)
        if self._broken_s >= self._limit_s:
            raise LifeEnded(
                f"worker {self.name} has had no line to the tracker at {self.address} for {self._limit_s:g} s: "
                + (self._why or "it takes no connection"),
                way_out="see the service's log, then start the job again",
            )
        return False

    def open_front(self, front: int, floor: int, feeds: Sequence[int] | None = None) -> int:
        """Open a front; return the tick below which it must label nothing. Waits for the answer: for rare use.

        Raises:
            ConnectionLost: there is no line, or no answer; ask again once `mend` has made one.
            LifeEnded: the tracker refuses it.
        """
        try:
            return self._client.open_front(front, floor, feeds)
        except TrackerError as error:
            self._broke(error)
            raise

    def close(self) -> None:
        """Close the line; what was not applied is kept."""
        self._drop_attempt("it was closed")
        self._client.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _greeted(self, now: float) -> bool:
        """Whether a tracker has taken the connection that is tried, so that it will not be waited for."""
        if self._attempt is not None and now - self._tried_at >= GREETING_LIMIT_S:
            self._drop_attempt("it takes no connection")
        if self._attempt is None:
            if now - self._tried_at < MEND_EVERY_S:
                return False
            self._tried_at = now
            self._attempt = socket.socket()
            self._attempt.setblocking(False)
            self._attempt.connect_ex(self._target)
        poll = select.poll()
        poll.register(self._attempt, select.POLLIN)
        if not poll.poll(0):
            return False
        error = self._attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        return True

    def _broke(self, error: TrackerError) -> None:
        """Note a broken line; any other error ends the life."""
        self._client.close()
        if not isinstance(error, ConnectionLost | NoticeGap):
            raise LifeEnded(str(error)) from error
        self._why = str(error)

    def _drop_attempt(self, why: str) -> None:
        self._why = why
        if self._attempt is not None:
            self._attempt.close()
            self._attempt = None
