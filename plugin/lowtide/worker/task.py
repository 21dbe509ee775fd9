"""The task attached to a worker: its connection, its waiting input, and the answers it is owed.

Everything a worker sends goes through the task; without one it is parked, and the next task gets it first. Nothing here
blocks: a host has other workers, whose input may be what lets this task's output go on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from lowtide.process.wire import Kind
from lowtide.worker.backlog import Backlog
from lowtide.worker.link import Link
from lowtide.worker.protocol import Frames
from lowtide.worker.watch import READ, WRITE, Watch

_TARGET = struct.Struct("<i")


class Task:
    """One task at a time, or none.

    Args:
        watch: The loop's.
        max_queued_bytes: Output that may wait for the task before it is `crowded`.
        max_group_rows: The largest number of records handled together.
    """

    def __init__(self, watch: Watch, *, max_queued_bytes: int, max_group_rows: int) -> None:
        self.backlog = Backlog(max_group_rows)
        self.parked: list[tuple[int, bytes]] = []
        self.owed = 0
        """Messages of rows handled without an answer yet: the task sends no more while it is owed some."""
        self.ending: int | None = None
        """The epoch whose end is being sent: later output waits for the next task."""
        self._link: Link | None = None
        self._watch = watch
        self._heard: Callable[[int], None] | None = None
        self._max_queued_bytes = max_queued_bytes
        self._parked_bytes = 0
        self._interest = 0

    @property
    def attached(self) -> bool:
        """Return whether there is one."""
        return self._link is not None

    @property
    def busy(self) -> bool:
        """Return whether there is work that needs no further event."""
        return bool(self.backlog) or (self.attached and bool(self.parked))

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes that wait for the attached task."""
        return 0 if self._link is None else self._link.unsent_bytes

    @property
    def crowded(self) -> bool:
        """Return whether so much output waits that input should not be read."""
        return self.unsent_bytes + self._parked_bytes >= self._max_queued_bytes

    def attach(self, link: Link, heard: Callable[[int], None]) -> None:
        """Attach a task; it gets what was parked first.

        Args:
            link: Its connection.
            heard: Called with the connection's events.
        """
        self._link = link
        self._heard = heard
        self._interest = READ
        self._watch.set(link.socket.fileno(), READ, heard)
        parked, self.parked, self._parked_bytes = self.parked, [], 0
        self.emit(parked)

    def detach(self) -> None:
        """Detach the task; drop what it has sent and was not handled."""
        link, self._link = self._link, None
        if link is None:
            return
        self._watch.drop(link.socket.fileno())
        self._interest = 0
        link.close()
        self.owed = 0
        self.ending = None
        self.backlog.clear()

    def watch(self, *, wanted: bool) -> None:
        """Read the task's input only if it is wanted, and write while something waits."""
        link = self._link
        if link is None or self._heard is None:
            return
        interest = (READ if wanted else 0) | (WRITE if link.unsent_bytes else 0)
        if interest != self._interest:
            self._interest = interest
            self._watch.set(link.socket.fileno(), interest, self._heard)

    def hear(self, events: int) -> None:
        """Send and take as much as possible; raises `ConnectionClosed` if the task has gone."""
        if self._link is None:
            return
        if events & WRITE:
            self._link.flush()
        if events & ~WRITE:  # Its end is an event of its own.
            self.backlog.add(self._link.receive())

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Add a message to what waits; without a task it is dropped."""
        if self._link is not None:
            self._link.send(kind, *parts)

    def flush(self) -> None:
        """Send what the task takes now; raises `ConnectionClosed` if it has gone."""
        if self._link is not None and self._link.unsent_bytes:
            self._link.flush()

    def answer(self) -> None:
        """Tell the task that all its rows are handled, so that it sends more."""
        for _ in range(self.owed if self._link is not None else 0):
            self.send(Kind.TAKEN)
            self.owed -= 1

    def emit(self, frames: Frames) -> None:
        """Send frames through the task; without one they wait for the next."""
        link = self._link if self.ending is None else None
        for target, frame in frames:
            if link is None:
                self.parked.append((target, frame))
                self._parked_bytes += len(frame)
            else:
                link.send(Kind.OUT, _TARGET.pack(target), frame)

    def end(self, epoch: int, message: bytes) -> None:
        """Tell the task, after all output, that its epoch is over; detach it once it has that."""
        self.send(Kind.ENDED, message)
        self.ending = epoch
