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
from lowtide.worker.door import Door
from lowtide.worker.link import Link
from lowtide.worker.protocol import Stage
from lowtide.worker.task import WAIT_S, Task

LOG = logging.getLogger(__name__)
IDLE_S = 0.05
"""How often sinks are served and gauges looked at when nothing happens."""
GAUGES_EVERY_S = 1.0
READ = selectors.EVENT_READ
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
        self._watched: tuple[int, ...] = ()
        self._failed = False
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._door = Door(listener, secret, self._selector, self._asked)
        self._task = Task(
            self._selector,
            heard=self._hear_task,
            wait=self._wait_for_task,
            max_queued_bytes=max_queued_bytes,
            max_group_rows=max_group_rows,
        )
        self._gauges_at = 0.0

    def run(self) -> None:
        """Serve until the service or SIGTERM says stop, or the service closes the line."""
        signal.signal(signal.SIGTERM, self.stop)
        self._selector.register(self._control.socket, READ, self._hear_service)
        while not self._stopping:
            self._task.watch(wanted=self._room() and not self._task.backlog)
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
        self._task.attach(link)
        self._gauges_at = 0.0
        self._guard(self._task.unpark)

    def _lose_task(self) -> None:
        """The task went without telling its end: what it had in hand is lost."""
        if self._task.attached:
            self._task.detach()
            self._attachment.broke()

    # -- the attached task ---------------------------------------------------------------------------------------

    def _watch_stage(self) -> None:
        """Watch what the stage waits for; a line that was made anew has another descriptor."""
        wanted = () if self._failed else self._stage.descriptors()
        if wanted == self._watched:
            return
        for descriptor in set(self._watched) - set(wanted):
            with suppress(KeyError, ValueError):  # It may have been closed already.
                self._selector.unregister(descriptor)
        for descriptor in set(wanted) - set(self._watched):
            self._selector.register(descriptor, READ, self._hear_stage)
        self._watched = wanted

    def _patience_s(self) -> float:
        if self._failed:
            return IDLE_S  # What is due is not done any more.
        return 0.0 if self._may_work() else min(IDLE_S, self._stage.due_s(time.monotonic()))

    def _room(self) -> bool:
        """Whether there is a task, and room for what comes of its input."""
        return self._task.has_room and not self._failed and not self._stage.full()

    def _may_work(self) -> bool:
        return bool(self._task.backlog) and self._room()

    def _hear_task(self, events: int) -> None:
        try:
            self._task.hear(events)
        except ConnectionClosed:
            self._lose_task()

    def _work(self) -> None:
        """Work one group of input off."""
        if self._may_work():
            self._guard(partial(self._take, *self._task.backlog.group()))
            self._flush()

    def _flush(self) -> None:
        try:
            self._task.flush()
        except ConnectionClosed:
            self._lose_task()

    def _take(self, kind: int, messages: list[bytes]) -> None:
        """Deal with frames that came together, or with one message of another kind."""
        now = time.time_ns()
        if kind == Kind.FRAME:
            self._task.emit(self._stage.frames(messages, now))
        elif kind == Kind.ROWS:
            self._task.emit(self._stage.rows(messages[0], now))
            self._task.owed += 1
            self._let_go_on()
        elif kind == Kind.END:
            (epoch,) = _EPOCH.unpack(messages[0])
            self._task.emit(self._stage.end(epoch, now))
            self._finish(epoch, messages[0])
        else:
            raise ValueError(f"a message of unknown kind {kind} from the task")

    def _let_go_on(self) -> None:
        """Tell the task that it may send more rows, unless the front is stopped (R8)."""
        if self._task.owed and self._stage.pulling():
            self._task.answer()

    def _finish(self, epoch: int, message: bytes) -> None:
        """Tell the task that all is out; its last bytes go out before anything else is done."""
        self._task.send(Kind.ENDED, message)
        self._task.drain()
        self._attachment.ended(epoch)
        self._task.detach()

    def _wait_for_task(self, waiting: selectors.BaseSelector) -> None:
        """Wait a moment for the task to take its output; the service is heard meanwhile."""
        if self._control.socket not in waiting.get_map():
            waiting.register(self._control.socket, READ)
        if any(key.fileobj is self._control.socket for key, _ in waiting.select(WAIT_S)):
            self._hear_service(READ)
        if self._stopping:
            raise ConnectionClosed("the worker was told to end")

    # -- what the stage waits for ----------------------------------------------------------------------------------

    def _hear_stage(self, _events: int) -> None:
        self._guard(lambda: self._task.emit(self._stage.hear()))
        # A line that broke is unwatched before another one can have its descriptor's number.
        self._watch_stage()

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        self._task.emit(self._stage.tick(now))
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
        return {"attached": self._task.attached, "busy": self._task.busy}

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
                    # What it has closed is unwatched before another descriptor can have its number.
                    self._watch_stage()
        except ConnectionClosed:
            self._service_gone()

    def _service_gone(self) -> None:
        LOG.info("the service closed the line: the life is over")
        self.stop()
