"""The worker's event loop: its only sockets and clock. One thread; the stage it drives does no I/O on them.

It listens for tasks, serves the one that is attached, and keeps a line to the service open. Input is not read while
output waits or the sinks are full, and that is what slows the whole way back to Kafka.
"""

import json
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any, Protocol

from lowtide.wire import ConnectionClosed, Kind, welcome
from lowtide.worker.attachment import Attachment
from lowtide.worker.link import Link
from lowtide_tracker.handshake import HandshakeError

UNSENT_BYTES_MAX = 4 << 20
"""Output that may wait for a task before its input stops being read."""
IDLE_S = 0.05
"""How often sinks are served and gauges looked at when nothing happens."""
GAUGES_EVERY_S = 1.0
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_TARGET = struct.Struct("<i")
_EPOCH = struct.Struct("<q")

Frames = Iterable[tuple[int, bytes]]
"""Frames for workers of the next level: ``(target partition, bytes)``."""


class Stage(Protocol):
    """What a worker does with its input; ``worker/stage.py``."""

    def rows(self, message: bytes, now_ns: int) -> Frames: ...
    def frame(self, message: bytes, now_ns: int) -> Frames: ...
    def end(self, epoch: int, now_ns: int) -> Frames: ...
    def tick(self, now_ns: int) -> Frames: ...
    def full(self) -> bool: ...
    def gauges(self) -> dict[str, Any]: ...
    def close(self, timeout_s: float) -> None: ...


class Loop:
    """Runs one worker until it is told to end, or its service has gone."""

    def __init__(self, stage: Stage, attachment: Attachment, listener: socket.socket, control: Link, secret: bytes):
        self._stage = stage
        self._attachment = attachment
        self._listener = listener
        self._control = control
        self._secret = secret
        self._task: Link | None = None
        self._candidate: Link | None = None
        self._parked: list[tuple[int, bytes]] = []
        self._failed = False
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._interest = 0
        self._gauges_at = 0.0

    def run(self) -> None:
        """Serves until SIGTERM or the loss of the service; then what the sinks hold is still delivered."""
        signal.signal(signal.SIGTERM, self._stop)
        self._listener.setblocking(False)
        self._selector.register(self._listener, READ, self._accept)
        self._selector.register(self._control.socket, READ, self._hear_service)
        try:
            while not self._stopping:
                self._watch()
                for key, events in self._selector.select(IDLE_S):
                    key.data(events)
                if not self._failed:
                    self._guard(self._emit_ticked)
                now = time.monotonic()
                if now >= self._gauges_at:
                    self._gauges_at = now + GAUGES_EVERY_S
                    self._tell({"gauges": self._stage.gauges() | {"attached": self._task is not None}})
        except ConnectionClosed:
            return  # The service has gone, and the job with it.

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._stopping = True

    # -- the attached task ---------------------------------------------------------------------------------------

    def _accept(self, _events: int) -> None:
        connection, _ = self._listener.accept()
        try:
            welcome(connection, self._secret)
        except (HandshakeError, ConnectionClosed, OSError) as error:
            print(f"lowtide worker: refused a connection: {error}", file=sys.stderr, flush=True)
            connection.close()
            return
        if self._candidate is not None:
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
            if self._task is not None:
                self._hear_task(READ)  # The task before may have just gone without our having looked.
            refused = self._attachment.attach(asked["incarnation"], asked["epoch"])
            if refused:
                link.send(Kind.ATTACH, json.dumps({"refused": refused}).encode())
                self._drop_candidate()
                return
            link.send(Kind.ATTACH, json.dumps({"attached": asked["worker"]}).encode())
        except ConnectionClosed:
            self._drop_candidate()
            return
        self._candidate = None
        self._task = link
        self._interest = READ
        self._selector.modify(link.socket, READ, self._hear_task)
        self._gauges_at = 0.0
        parked, self._parked = self._parked, []
        self._guard(lambda: self._emit(parked))

    def _watch(self) -> None:
        """Reads the task's input only while there is room for what comes of it."""
        if self._task is None:
            return
        room = self._task.unsent_bytes < UNSENT_BYTES_MAX and not self._failed and not self._stage.full()
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
                for kind, message in task.receive():
                    self._guard(lambda kind=kind, message=message: self._take(kind, message))  # type: ignore[misc]
        except ConnectionClosed:
            if self._task is task:
                self._detach()
                self._attachment.broke()

    def _take(self, kind: int, message: bytes) -> None:
        if self._failed:
            return
        now = time.time_ns()
        if kind == Kind.FRAME:
            self._emit(self._stage.frame(message, now))
        elif kind == Kind.ROWS:
            self._emit(self._stage.rows(message, now))
        elif kind == Kind.END:
            (epoch,) = _EPOCH.unpack(message)
            self._emit(self._stage.end(epoch, now))
            assert self._task is not None
            self._task.send(Kind.ENDED, message)
            self._finish(epoch)
        else:
            raise ValueError(f"a message of unknown kind {kind} from the task")

    def _finish(self, epoch: int) -> None:
        """The last bytes of an epoch go out before anything else is done."""
        task = self._task
        assert task is not None
        task.socket.setblocking(True)
        task.flush()
        self._attachment.ended(epoch)
        self._detach()

    def _detach(self) -> None:
        if self._task is None:
            return
        if self._interest:
            self._selector.unregister(self._task.socket)
        self._interest = 0
        self._task.close()
        self._task = None

    # -- output --------------------------------------------------------------------------------------------------

    def _emit(self, frames: Frames) -> None:
        """Sends frames through the task; without one they wait for the next."""
        for target, frame in frames:
            if self._task is None:
                self._parked.append((target, frame))
            else:
                self._task.send(Kind.OUT, _TARGET.pack(target), frame)

    def _emit_ticked(self) -> None:
        self._emit(self._stage.tick(time.time_ns()))

    def _guard(self, step: Any) -> None:
        """Runs a step; what goes wrong in it goes to the task and the service, and nothing is done any more."""
        try:
            step()
        except ConnectionClosed:
            raise
        except Exception as error:
            self._failed = True
            text = str(error) if getattr(error, "told", False) else _with_traceback(error)
            self._tell({"failed": text})
            if self._task is not None:
                self._task.send(Kind.FAILED, text.encode())

    # -- the service ---------------------------------------------------------------------------------------------

    def _tell(self, message: dict[str, Any]) -> None:
        self._control.send(Kind.ASK, json.dumps(message).encode())

    def _hear_service(self, _events: int) -> None:
        self._control.flush()
        self._control.receive()


def _with_traceback(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error))
