"""The worker's event loop: its only sockets and clock. One thread; the stage it drives does no I/O on them.

It listens for tasks, serves the one that is attached, keeps a line to the service open, and watches what its stage
waits for: the tracker, the sinks. Input is not read while output waits or the sinks are full, and that is what slows
the whole way back to Kafka. However much has come, the loop looks up from it after each group: no long backlog keeps it
from hearing that min time has moved (R8).
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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from lowtide.errors import LowtideError
from lowtide.wire import ConnectionClosed, Kind
from lowtide.worker.attachment import Attachment
from lowtide.worker.backlog import Backlog
from lowtide.worker.door import Door
from lowtide.worker.link import Link
from lowtide.worker.protocol import Frames, Stage

LOG = logging.getLogger(__name__)
IDLE_S = 0.05
"""How often sinks are served and gauges looked at when nothing happens."""
GAUGES_EVERY_S = 1.0
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_TARGET = struct.Struct("<i")
_EPOCH = struct.Struct("<q")


class Loop:
    """Runs one worker until it is told to end, or its service has gone with the life.

    Args:
        stage: What the worker does.
        attachment: Which tasks it takes.
        listener: Where tasks connect.
        control: The line to the service.
        secret: The job's.
        max_queued_bytes: Output that may wait for the task before its input stops being read.
        max_group_rows: Records that are dealt with together at most.
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
        max_group_rows: int,
    ) -> None:
        self._stage = stage
        self._attachment = attachment
        self._control = control
        self._max_queued_bytes = max_queued_bytes
        self._task: Link | None = None
        self._backlog = Backlog(max_group_rows)
        self._parked: list[tuple[int, bytes]] = []
        self._owed = 0
        """Messages of rows that were dealt with, and the task does not know: it sends no more while it is owed some."""
        self._watched: tuple[int, ...] = ()
        self._failed = False
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._door = Door(listener, secret, self._selector, self._asked)
        self._interest = 0
        self._gauges_at = 0.0

    def run(self) -> None:
        """Serve until the service or SIGTERM says stop, or the service closes the line."""
        signal.signal(signal.SIGTERM, self.stop)
        self._selector.register(self._control.socket, READ, self._hear_service)
        while not self._stopping:
            self._watch()
            self._watch_stage()
            for key, events in self._selector.select(self._patience_s()):
                key.data(events)
            self._work()
            self._guard(self._do_what_is_due)
            self._door.tick()
            self._report()

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """End soon; what is being processed is finished first."""
        self._stopping = True

    # -- tasks come and go ---------------------------------------------------------------------------------------

    def _asked(self, link: Link, asked: dict[str, Any]) -> None:
        """A task that has proved the secret asks to be taken."""
        self._hear_task(READ)  # The task before may have just gone without our having looked.
        refused = self._attachment.attach(asked["incarnation"], asked["epoch"])
        answer = {"refused": refused} if refused else {"attached": asked["worker"]}
        link.send(Kind.ATTACH, json.dumps(answer).encode())
        try:
            link.flush()
        except ConnectionClosed:
            if not refused:
                self._attachment.broke()
            refused = "it has gone"
        if refused:
            link.close()
            return
        self._task = link
        self._interest = READ
        self._selector.register(link.socket, READ, self._hear_task)
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
            self._owed = 0
            self._backlog.clear()

    # -- the attached task ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Read the task's input only while there is room for what comes of it."""
        if self._task is None:
            return
        wanted = self._room() and not self._backlog
        interest = (READ if wanted else 0) | (WRITE if self._task.unsent_bytes else 0)
        if interest == self._interest:
            return
        if self._interest == 0:
            self._selector.register(self._task.socket, interest, self._hear_task)
        elif interest == 0:
            self._selector.unregister(self._task.socket)
        else:
            self._selector.modify(self._task.socket, interest, self._hear_task)
        self._interest = interest

    def _watch_stage(self) -> None:
        """Watch what the stage waits for; a line that was made anew has another descriptor."""
        wanted = self._stage.descriptors()
        if wanted == self._watched:
            return
        for descriptor in set(self._watched) - set(wanted):
            with suppress(KeyError, ValueError):  # It may have been closed already.
                self._selector.unregister(descriptor)
        for descriptor in set(wanted) - set(self._watched):
            self._selector.register(descriptor, READ, self._hear_stage)
        self._watched = wanted

    def _patience_s(self) -> float:
        return 0.0 if self._may_work() else min(IDLE_S, self._stage.due_s(time.monotonic()))

    def _room(self) -> bool:
        """Whether there is a task, and room for what comes of its input."""
        task = self._task
        full = task is None or task.unsent_bytes >= self._max_queued_bytes or self._stage.full()
        return not (full or self._failed)

    def _may_work(self) -> bool:
        return bool(self._backlog) and self._room()

    def _hear_task(self, events: int) -> None:
        task = self._task
        if task is None:
            return
        try:
            if events & WRITE:
                task.flush()
            if events & READ:
                self._backlog.add(task.receive())
        except ConnectionClosed:
            self._lose_task()

    def _work(self) -> None:
        """Work one group of input off."""
        if self._may_work():
            self._guard(partial(self._take, *self._backlog.group()))
            self._flush()

    def _flush(self) -> None:
        try:
            if self._task is not None:
                self._task.flush()
        except ConnectionClosed:
            self._lose_task()

    def _lose_task(self) -> None:
        """The task went without telling its end: what it had in hand is lost."""
        if self._task is not None:
            self._detach()
            self._attachment.broke()

    def _take(self, kind: int, messages: list[bytes]) -> None:
        """Deal with frames that came together, or with one message of another kind."""
        assert self._task is not None
        now = time.time_ns()
        if kind == Kind.FRAME:
            self._emit(self._stage.frames(messages, now))
        elif kind == Kind.ROWS:
            self._emit(self._stage.rows(messages[0], now))
            self._owed += 1
            self._let_go_on()
        elif kind == Kind.END:
            (epoch,) = _EPOCH.unpack(messages[0])
            self._emit(self._stage.end(epoch, now))
            self._finish(epoch, messages[0])
        else:
            raise ValueError(f"a message of unknown kind {kind} from the task")

    def _let_go_on(self) -> None:
        """Tell the task that it may send more rows, unless the front is stopped (R8)."""
        if self._owed and self._task is not None and self._stage.pulling():
            for _ in range(self._owed):
                self._task.send(Kind.TAKEN)
            self._owed = 0

    def _finish(self, epoch: int, message: bytes) -> None:
        """Tell the task that all is out; its last bytes go out before anything else is done."""
        assert self._task is not None
        self._task.send(Kind.ENDED, message)
        self._drain(0)
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
                    self._drain(self._max_queued_bytes)

    def _drain(self, down_to: int) -> None:
        """Wait until the task has taken its output but for `down_to` bytes; the service is heard meanwhile.

        Raises:
            ConnectionClosed: the task has gone, or this worker is to end.
        """
        assert self._task is not None
        self._task.flush()
        if self._task.unsent_bytes <= down_to:
            return
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._task.socket, WRITE)
            waiting.register(self._control.socket, READ)
            while self._task.unsent_bytes > down_to:
                if any(key.fileobj is self._control.socket for key, _ in waiting.select(IDLE_S)):
                    self._hear_service(READ)
                if self._stopping:
                    raise ConnectionClosed("the worker was told to end")
                self._task.flush()

    def _hear_stage(self, _events: int) -> None:
        self._guard(lambda: self._emit(self._stage.hear()))
        # A line that broke is unwatched before another one can have its descriptor's number.
        self._watch_stage()

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        self._emit(self._stage.tick(now))
        self._let_go_on()
        self._flush()
        for ask in self._stage.asks(now):
            self._tell(ask)

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step; what goes wrong in it is told to the task and the service, and nothing is done any more."""
        if self._failed:
            return
        try:
            step()
        except ConnectionClosed:
            self._lose_task()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the life ends with it
            self._failed = True
            text = str(error) if isinstance(error, LowtideError) else "".join(traceback.format_exception(error))
            self._tell({"failed": text})
            if self._task is not None:
                self._task.send(Kind.FAILED, text.encode())
                self._flush()

    # -- the service ---------------------------------------------------------------------------------------------

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._gauges_at:
            self._gauges_at = now + GAUGES_EVERY_S
            self._tell({"gauges": self._stage.gauges() | self._state()})

    def _state(self) -> dict[str, bool]:
        """Whether a task is attached, and whether there is work that does not wait for min time."""
        return {"attached": self._task is not None, "busy": bool(self._backlog or self._parked)}

    def _tell(self, message: dict[str, Any]) -> None:
        self._control.send(Kind.ASK, json.dumps(message).encode())
        try:
            self._control.flush()
        except ConnectionClosed:
            self._service_gone()

    def _hear_service(self, _events: int) -> None:
        try:
            self._control.flush()
            for _, message in self._control.receive():
                said = json.loads(message)
                if "stop" in said:
                    self.stop()
                else:
                    self._stage.told(said)
        except ConnectionClosed:
            self._service_gone()

    def _service_gone(self) -> None:
        LOG.info("the service closed the line: the life is over")
        self.stop()
