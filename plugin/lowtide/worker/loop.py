"""The worker's event loop: its only sockets and clock. One thread; the stage it drives does no I/O on them.

It listens for tasks, serves the one that is attached, and keeps a line to the service open. Input is not read while
output waits or the sinks are full, and that is what slows the whole way back to Kafka.
"""

from __future__ import annotations

import json
import logging
import selectors
import signal
import socket
import struct
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from types import FrameType
from typing import Any, Protocol

from lowtide.errors import LowtideError
from lowtide.wire import ConnectionClosed, Kind, welcome
from lowtide.worker.attachment import Attachment
from lowtide.worker.link import Link
from lowtide_tracker.handshake import HandshakeError

LOG = logging.getLogger(__name__)
IDLE_S = 0.05
"""How often sinks are served and gauges looked at when nothing happens."""
GAUGES_EVERY_S = 1.0
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_TARGET = struct.Struct("<i")
_EPOCH = struct.Struct("<q")

Frames = Iterable[tuple[int, bytes]]
"""Frames for workers of the next level: `(target partition, bytes)`."""


class Stage(Protocol):
    """What a worker does with its input: `worker/stage.py`. All times in ns since 1970."""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        """Take records of a source partition."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        """Take frames of the level before."""

    def end(self, epoch: int, now_ns: int) -> Frames:
        """The epoch's input is over."""

    def tick(self, now_ns: int) -> Frames:
        """Do what is due without input."""

    def full(self) -> bool:
        """Whether no more input should be read for now."""

    def gauges(self) -> dict[str, Any]:
        """Figures for the service, as JSON."""


class Loop:
    """Runs one worker until it is told to end, or its service has gone with the life.

    Args:
        stage: What the worker does.
        attachment: Which tasks it takes.
        listener: Where tasks connect.
        control: The line to the service.
        secret: The job's.
        max_queued_bytes: Output that may wait for the task before its input stops being read.
    """

    def __init__(
        self,
        stage: Stage,
        attachment: Attachment,
        *,
        listener: socket.socket,
        control: Link,
        secret: bytes,
        max_queued_bytes: int,
    ) -> None:
        self._stage = stage
        self._attachment = attachment
        self._listener = listener
        self._control = control
        self._secret = secret
        self._max_queued_bytes = max_queued_bytes
        self._task: Link | None = None
        self._candidate: Link | None = None
        self._parked: list[tuple[int, bytes]] = []
        self._failed = False
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._interest = 0
        self._gauges_at = 0.0

    def run(self) -> None:
        """Serve until the service or SIGTERM says stop, or the service closes the line."""
        signal.signal(signal.SIGTERM, self.stop)
        self._listener.setblocking(False)
        self._selector.register(self._listener, READ, self._accept)
        self._selector.register(self._control.socket, READ, self._hear_service)
        try:
            while not self._stopping:
                self._watch()
                for key, events in self._selector.select(IDLE_S):
                    key.data(events)
                self._guard(self._emit_what_is_due)
                self._report()
        except ConnectionClosed:
            LOG.info("the service closed the line: the life is over")

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """End soon; what is being processed is finished first."""
        self._stopping = True

    # -- tasks come and go ---------------------------------------------------------------------------------------

    def _accept(self, _events: int) -> None:
        connection, _ = self._listener.accept()
        try:
            welcome(connection, self._secret)
        except (HandshakeError, ConnectionClosed, OSError) as error:
            LOG.warning("a connection was refused: %s", error)
            connection.close()
            return
        self._drop_candidate()
        self._candidate = Link(connection)
        self._selector.register(connection, READ, self._hear_candidate)

    def _drop_candidate(self) -> None:
        if self._candidate is not None:
            self._selector.unregister(self._candidate.socket)
            self._candidate.close()
            self._candidate = None

    def _hear_candidate(self, _events: int) -> None:
        """A task that has proved the secret asks to be taken."""
        link = self._candidate
        assert link is not None
        try:
            messages = link.receive()
            if not messages:
                return
            asked = json.loads(messages[0][1])
            self._hear_task(READ)  # The task before may have just gone without our having looked.
            refused = self._attachment.attach(asked["incarnation"], asked["epoch"])
            answer = {"refused": refused} if refused else {"attached": asked["worker"]}
            link.send(Kind.ATTACH, json.dumps(answer).encode())
            link.flush()
        except ConnectionClosed:
            self._drop_candidate()
            return
        if refused:
            self._drop_candidate()
            return
        self._candidate = None
        self._task = link
        self._interest = READ
        self._selector.modify(link.socket, READ, self._hear_task)
        self._gauges_at = 0.0
        parked, self._parked = self._parked, []
        self._guard(partial(self._emit, parked))

    def _detach(self) -> None:
        if self._task is not None:
            if self._interest:
                self._selector.unregister(self._task.socket)
            self._interest = 0
            self._task.close()
            self._task = None

    # -- the attached task ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Read the task's input only while there is room for what comes of it."""
        if self._task is None:
            return
        room = self._task.unsent_bytes < self._max_queued_bytes and not self._failed and not self._stage.full()
        interest = (READ if room else 0) | (WRITE if self._task.unsent_bytes else 0)
        if interest == self._interest:
            return
        if self._interest == 0:
            self._selector.register(self._task.socket, interest, self._hear_task)
        elif interest == 0:
            self._selector.unregister(self._task.socket)
        else:
            self._selector.modify(self._task.socket, interest, self._hear_task)
        self._interest = interest

    def _hear_task(self, events: int) -> None:
        task = self._task
        if task is None:
            return
        try:
            if events & WRITE:
                task.flush()
            if events & READ:
                for kind, messages in groupby(task.receive(), itemgetter(0)):
                    self._guard(partial(self._take, kind, [message for _, message in messages]))
            task.flush()
        except ConnectionClosed:
            self._lose_task()

    def _lose_task(self) -> None:
        """The task went without telling its end: what it had in hand is lost."""
        if self._task is not None:
            self._detach()
            self._attachment.broke()

    def _take(self, kind: int, messages: list[bytes]) -> None:
        """Deal with messages of one kind that came together."""
        if self._task is None:
            return  # Its connection broke while an earlier one of its messages was answered.
        now = time.time_ns()
        if kind == Kind.FRAME:
            self._emit(self._stage.frames(messages, now))
        elif kind == Kind.ROWS:
            for message in messages:
                self._emit(self._stage.rows(message, now))
                self._task.send(Kind.TAKEN)
        elif kind == Kind.END:
            (epoch,) = _EPOCH.unpack(messages[0])
            self._emit(self._stage.end(epoch, now))
            self._finish(epoch, messages[0])
        else:
            raise ValueError(f"a message of unknown kind {kind} from the task")

    def _finish(self, epoch: int, message: bytes) -> None:
        """Tell the task that all is out; its last bytes go out before anything else is done."""
        assert self._task is not None
        self._task.send(Kind.ENDED, message)
        self._task.flush_all()
        self._attachment.ended(epoch)
        self._detach()

    # -- output --------------------------------------------------------------------------------------------------

    def _emit(self, frames: Frames) -> None:
        """Send frames through the task; without one they wait for the next."""
        for target, frame in frames:
            if self._task is None:
                self._parked.append((target, frame))
            else:
                self._task.send(Kind.OUT, _TARGET.pack(target), frame)
                if self._task.unsent_bytes > 2 * self._max_queued_bytes:
                    self._task.flush_all()

    def _emit_what_is_due(self) -> None:
        self._emit(self._stage.tick(time.time_ns()))
        if self._task is not None:
            self._task.flush()

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step; what goes wrong in it is told to the task and the service, and nothing is done any more."""
        if self._failed:
            return
        try:
            step()
        except ConnectionClosed:
            self._lose_task()
        except Exception as error:  # noqa: BLE001 - whatever it is, the life ends with it
            self._failed = True
            text = str(error) if isinstance(error, LowtideError) else "".join(traceback.format_exception(error))
            self._tell({"failed": text})
            if self._task is not None:
                self._task.send(Kind.FAILED, text.encode())
                self._task.flush()

    # -- the service ---------------------------------------------------------------------------------------------

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._gauges_at:
            self._gauges_at = now + GAUGES_EVERY_S
            self._tell({"gauges": self._stage.gauges() | {"attached": self._task is not None}})

    def _tell(self, message: dict[str, Any]) -> None:
        self._control.send(Kind.ASK, json.dumps(message).encode())
        self._control.flush()

    def _hear_service(self, _events: int) -> None:
        self._control.flush()
        for _, message in self._control.receive():
            if "stop" in json.loads(message):
                self.stop()
