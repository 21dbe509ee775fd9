"""The task that is attached to a worker: its connection, its input that waits, and the answers it is owed.

Everything a worker sends goes through the task; without one it is parked, and is the first that the next one is sent.
"""

from __future__ import annotations

import selectors
import struct
from collections.abc import Callable

from lowtide.wire import Kind
from lowtide.worker.backlog import Backlog
from lowtide.worker.link import Link
from lowtide.worker.protocol import Frames

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
WAIT_S = 0.05
_TARGET = struct.Struct("<i")


class Task:
    """One task at a time, or none.

    Args:
        selector: The loop's; every socket in it has the function to call as its data.
        heard: Called with the events of the task's connection.
        wait: Called by `drain` every `WAIT_S` or when another socket has something; raises to give up.
        max_queued_bytes: Output that may wait for the task before its input stops being read.
        max_group_rows: Records that are dealt with together at most.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        heard: Callable[[int], None],
        wait: Callable[[selectors.BaseSelector], None],
        max_queued_bytes: int,
        max_group_rows: int,
    ) -> None:
        self.backlog = Backlog(max_group_rows)
        self.parked: list[tuple[int, bytes]] = []
        self.owed = 0
        """Messages of rows that were dealt with, and the task does not know: it sends no more while it is owed some."""
        self._link: Link | None = None
        self._selector = selector
        self._heard = heard
        self._wait = wait
        self._max_queued_bytes = max_queued_bytes
        self._interest = 0

    @property
    def attached(self) -> bool:
        """Whether there is one."""
        return self._link is not None

    @property
    def busy(self) -> bool:
        """Whether there is work that will be done without anything else happening."""
        return bool(self.backlog) or (self.attached and bool(self.parked))

    @property
    def has_room(self) -> bool:
        """Whether there is one, and not too much waits for it."""
        return self._link is not None and self._link.unsent_bytes < self._max_queued_bytes

    def attach(self, link: Link) -> None:
        """Take a task over; `emit` what was parked next."""
        self._link = link
        self._interest = READ
        self._selector.register(link.socket, READ, self._heard)

    def detach(self) -> None:
        """Let the task go; what it has sent and was not dealt with is forgotten."""
        link, self._link = self._link, None
        if link is None:
            return
        if self._interest:
            self._selector.unregister(link.socket)
        self._interest = 0
        link.close()
        self.owed = 0
        self.backlog.clear()

    def watch(self, *, wanted: bool) -> None:
        """Read the task's input only if it is wanted, and write while something waits."""
        if self._link is None:
            return
        interest = (READ if wanted else 0) | (WRITE if self._link.unsent_bytes else 0)
        if interest == self._interest:
            return
        if self._interest == 0:
            self._selector.register(self._link.socket, interest, self._heard)
        elif interest == 0:
            self._selector.unregister(self._link.socket)
        else:
            self._selector.modify(self._link.socket, interest, self._heard)
        self._interest = interest

    def hear(self, events: int) -> None:
        """Send and take what can be; `ConnectionClosed` if the task has gone."""
        if self._link is None:
            return
        if events & WRITE:
            self._link.flush()
        if events & READ:
            self.backlog.add(self._link.receive())

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Put a message behind what waits; nobody gets it where no task is attached."""
        if self._link is not None:
            self._link.send(kind, *parts)

    def flush(self) -> None:
        """Send what the task takes now; `ConnectionClosed` if it has gone."""
        if self._link is not None:
            self._link.flush()

    def answer(self) -> None:
        """Tell the task that all its rows were dealt with, so that it sends more."""
        for _ in range(self.owed if self._link is not None else 0):
            self.send(Kind.TAKEN)
            self.owed -= 1

    def emit(self, frames: Frames) -> None:
        """Send frames through the task; without one they wait for the next."""
        for target, frame in frames:
            if self._link is None:
                self.parked.append((target, frame))
                continue
            self._link.send(Kind.OUT, _TARGET.pack(target), frame)
            if self._link.unsent_bytes > 2 * self._max_queued_bytes:
                self.drain(self._max_queued_bytes)

    def unpark(self) -> None:
        """Send what was parked."""
        parked, self.parked = self.parked, []
        self.emit(parked)

    def drain(self, down_to: int = 0) -> None:
        """Wait until the task has taken its output but for `down_to` bytes.

        Raises:
            ConnectionClosed: the task has gone, or `wait` gave up.
        """
        link = self._link
        assert link is not None
        link.flush()
        if link.unsent_bytes <= down_to:
            return
        with selectors.DefaultSelector() as waiting:
            waiting.register(link.socket, WRITE)
            while link.unsent_bytes > down_to:
                self._wait(waiting)
                link.flush()
