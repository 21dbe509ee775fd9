"""The event loop of a host process: its only sockets and clock. One thread; the workers it drives do no I/O on them.

It listens for tasks, serves those attached, keeps a line to the service open, takes the fork server's orders for more
workers, and watches what the host waits for: the tracker, the sinks. Input is not read while output waits or the sinks
are full, here or at a worker of a later level, and that slows the whole way back to Kafka: a worker never waits for
one further up, so two never wait for each other. However much input there is, the loop turns to other events after
each group: no long backlog delays the news that min time has moved (R8).
"""

from __future__ import annotations

import logging
import signal
import socket
import ssl
import struct
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import msgspec
from msgspec.structs import replace

from lowtide.assignment.birth import Birth
from lowtide.assignment.messages import (
    Attach,
    Done,
    Failed,
    FromHost,
    Gauges,
    Malformed,
    News,
    Refused,
    Stands,
    ToWorker,
    WorkerHello,
    encode,
    read_by_host,
    read_order,
)
from lowtide.assignment.welcome import Welcome, unpack
from lowtide.histogram import Histogram
from lowtide.process.wire import ConnectionClosed, Kind
from lowtide.status.gauges import StepStands, WorkerGauges
from lowtide.worker.attachment import Attachment
from lowtide.worker.busy import Doing
from lowtide.worker.call_limit import CallLimit
from lowtide.worker.door import Door
from lowtide.worker.link import Link
from lowtide.worker.protocol import Emitted, Host, Stage
from lowtide.worker.resident import Resident, not_ahead
from lowtide.worker.task import Task
from lowtide.worker.watch import READ, Watch
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import cause_of

LOG = logging.getLogger(__name__)
IDLE_S = 0.05
"""The interval at which sinks are served and gauges are checked when nothing happens."""
GAUGES_EVERY_S = 1.0
_EPOCH = struct.Struct("<q")


class Loop:
    """Runs the workers of one host until it must end, or its service has gone with the life.

    Args:
        host: The shared part of the workers.
        make: Makes the stage of a worker that comes later.
        hello: Makes the hello of one, for the service.
        birth: The first worker's birth.
        listeners: The sockets to which tasks connect, TCP or Unix.
        control: The line to the service.
        orders: The line from the fork server.
        max_queued_bytes: Output that may wait for a task before input stops being read.
        max_group_rows: The largest number of records handled together.
        call_limit_s: The longest time a turn, and so a call of the flow's functions, may last.
        tls: What the tasks' connections over TCP are under; None for nothing.
    """

    def __init__(
        self,
        host: Host,
        *,
        make: Callable[[Birth, Welcome], Stage],
        hello: Callable[[Birth], WorkerHello],
        birth: Birth,
        listeners: Sequence[socket.socket],
        control: Link,
        orders: socket.socket,
        max_queued_bytes: int,
        max_group_rows: int,
        call_limit_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host = host
        self._limit = CallLimit(call_limit_s, self._hangs, self._stands)
        self._make = make
        self._hello = hello
        self._birth = birth
        self._control = control
        self._orders = orders
        self._order = b""
        """The start of an order whose end has not come."""
        self._max_queued_bytes = max_queued_bytes
        self._max_group_rows = max_group_rows
        self._workers: dict[str, Resident] = {}
        self._down: list[Resident] = []
        """The same, the last level first: workers further down make room for those further up."""
        self._expected: deque[Birth] = deque()
        """Workers that the fork server has ordered and the service has not welcomed yet."""
        self._early: dict[str, tuple[Link, Attach]] = {}
        """By worker, the task that asked for it before it was here."""
        self._watch = Watch()
        self._turns = Histogram()
        """How long turns have taken that had something to do, waiting apart."""
        self._watched: list[tuple[int, Callable[[], Emitted]]] = []
        self._failed = False
        self._stopping = False
        self._more = False
        """True if there is input that can be handled at once."""
        self._doors = [Door(each, birth.secret, self._watch, self._asked, tls=tls) for each in listeners]
        self._gauges_at = 0.0

    def run(self) -> None:
        """Serve until the service or SIGTERM stops it, or the service closes the line."""
        signal.signal(signal.SIGTERM, self.stop)
        self._orders.setblocking(False)
        self._watch.set(self._control.socket.fileno(), READ, self._hear_service)
        self._watch.set(self._orders.fileno(), READ, self._hear_orders)
        self._settle()
        self._limit.begin()
        self._hear_service()  # Under TLS more than the plan may have come with it.
        while not self._stopping:
            self._limit.turns += 1
            self._watch_host()
            idle = not self._watch.turn(self._patience_s()) and not self._more
            self._guard(self._rest if idle and self._host.restless else self._work)
            self._settle()
            for door in self._doors:
                door.tick()
            self._report()
            if not idle:
                self._turns.add(time.monotonic_ns() - self._watch.woke_ns)
        self._limit.end()
        if not self._failed:
            self._send_gauges()  # A stop publishes what these say is durable.

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """End soon, after finishing what is being processed."""
        self._stopping = True

    def take_in(self, birth: Birth, stage: Stage) -> None:
        """Add a worker to this process."""
        task = Task(
            self._watch,
            max_queued_bytes=self._max_queued_bytes,
            max_group_rows=self._max_group_rows,
        )
        attachment = Attachment(birth.incarnation, every_epoch=birth.level > 0)
        self._workers[birth.name] = Resident(birth.name, birth.level, stage, attachment, task)
        self._down = sorted(self._workers.values(), key=lambda worker: -worker.level)
        if birth.name in self._early:
            self._attach(self._workers[birth.name], *self._early.pop(birth.name))

    # -- tasks come and go ---------------------------------------------------------------------------------------

    def _asked(self, link: Link, asked: Attach) -> None:
        """Take a task that has proved the secret, or refuse it."""
        name = asked.worker
        if name not in self._workers:
            self._hear_orders()  # The order came before the address was given out.
        if name in self._workers:
            self._attach(self._workers[name], link, asked)
        elif name not in self._early and any(birth.name == name for birth in self._expected):
            self._early[name] = link, asked
        else:
            self._answer(link, f"there is no worker {name} in this process")
            link.close()

    def _attach(self, worker: Resident, link: Link, asked: Attach) -> None:
        worker.hear(READ)  # The task before may have gone unnoticed.
        refused = worker.attachment.attach(asked.incarnation, asked.epoch)
        if not self._answer(link, refused) and not refused:
            worker.attachment.broke()
            refused = "the worker has gone"
        if refused:
            link.close()
            return
        worker.task.attach(link, worker.hear)
        worker.touched = True
        self._gauges_at = 0.0

    @staticmethod
    def _answer(link: Link, refused: str) -> bool:
        """Answer a task whether it is taken; return whether it is still there."""
        link.send(Kind.ATTACH, encode(Refused(refused) if refused else Done()))
        try:
            link.flush()
        except ConnectionClosed:
            return False
        return True

    # -- a turn ----------------------------------------------------------------------------------------------------

    def _watch_host(self) -> None:
        """Watch what the host waits for; a line that was recreated has another descriptor."""
        wanted = [] if self._failed else self._host.watched()
        if wanted == self._watched:
            return
        kept = {descriptor for descriptor, _ in wanted}
        for descriptor, _ in self._watched:
            if descriptor not in kept:
                self._watch.drop(descriptor)
        for entry in wanted:
            if entry not in self._watched:
                self._watch.set(entry[0], READ, self._hearing(entry[1]))
        self._watched = wanted

    def _hearing(self, hear: Callable[[], Emitted]) -> Callable[[int], None]:
        def heard(_events: int) -> None:
            self._guard(self._emit_what, hear)
            # Stop watching a broken line before another one can get its descriptor's number.
            self._watch_host()

        return heard

    def _patience_s(self) -> float:
        if self._failed:
            return IDLE_S  # Nothing that is due is done any more.
        if self._more or self._host.restless:
            return 0.0
        return min(IDLE_S, self._host.due_s(time.monotonic()))

    def _work(self) -> None:
        """Handle one group of each worker's input, with all that it leads to here, then do what is due."""
        host = self._host
        ready = [worker for worker in self._down if worker.task.backlog and worker.open]
        for worker in not_ahead(ready) if len(ready) > 1 else ready:
            if worker.task.backlog and worker.open:
                worker.touched = True
                self._take(worker, *worker.task.backlog.group())
                worker.flush()
                self._emit(host.handed())
        now = time.monotonic()
        self._emit(host.tick(now))
        self._emit(host.handed())
        host.send()
        news = host.news(now)
        if news:
            self._send(News(news))

    def _rest(self) -> None:
        """Let workers go further ahead of min time, as no input has come, then do what is due."""
        self._emit(self._host.rest())
        self._work()

    def _take(self, worker: Resident, kind: int, messages: list[bytes]) -> None:
        """Handle frames that came together, or one message of another kind."""
        now, stage, task = time.time_ns(), worker.stage, worker.task
        if kind == Kind.FRAME:
            task.emit(stage.frames(messages, now))
        elif kind == Kind.ROWS:
            task.emit(stage.rows(messages[0], now))
            task.owed += 1
            if stage.pulling():
                task.answer()
        elif kind == Kind.END:
            (epoch,) = _EPOCH.unpack(messages[0])
            task.emit(stage.end(epoch, now))
            task.end(epoch, messages[0])
        else:
            raise ValueError(f"a message of unknown kind {kind} from the task")

    def _emit_what(self, hear: Callable[[], Emitted]) -> None:
        self._emit(hear())

    def _emit(self, emitted: Emitted) -> None:
        for name, frames in emitted:
            self._workers[name].emit(frames)

    def _settle(self) -> None:
        """Send what is due, and decide which workers may read on."""
        level, above, here, self._more = -1, self._failed, False, False
        for worker in self._down:
            task = worker.task
            if worker.level != level:
                level, above, here = worker.level, above or here, False
            if task.owed and worker.stage.pulling():  # R8: otherwise the front is stopped, and its task sends no more.
                task.answer()
                worker.touched = True
            if worker.touched:
                worker.touched = False
                worker.flush()
                worker.choked = task.crowded or worker.stage.full()
            here = here or worker.choked
            worker.open = not (above or worker.choked)
            backlog = bool(task.backlog)
            self._more = self._more or (backlog and worker.open)
            task.watch(wanted=worker.open and not backlog)

    def _guard(self, step: Callable[..., None], *given: Any) -> None:
        """Run a step; report its error to the tasks and the service, and do nothing more."""
        if self._failed:
            return
        try:
            step(*given)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the life ends with it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        cause = cause_of(error, "".join(traceback.format_exception(error)))
        self._send(Failed(cause))
        for worker in self._down:
            worker.touched = True
            worker.task.send(Kind.FAILED, msgspec.json.encode(cause))

    def _hangs(self, cause: Cause) -> None:
        """Report a call that does not return: the service ends the life, and then this unresponsive process."""
        self._send(Failed(cause))

    def _stands(self, doing: Doing, for_s: float) -> None:
        """Report a step that does not return, in the middle of it: gauges are sent only between two turns.

        A step writes to no line to the service, so none is being written to now.
        """
        self._send(Stands(doing.worker, StepStands(step=doing.step, function=doing.function, for_s=for_s)))

    # -- more workers ----------------------------------------------------------------------------------------------

    def _hear_orders(self, _events: int = READ) -> None:
        """Take the fork server's orders for more workers; announce each to the service in turn."""
        while True:
            try:
                data = self._orders.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._watch.drop(self._orders.fileno())
                return
            *orders, self._order = (self._order + data).split(b"\n")
            for order in orders:
                self._guard(self._expect, order)

    def _expect(self, order: bytes) -> None:
        birth = self._birth.of(read_order(order))
        self._expected.append(birth)
        self._send(self._hello(birth))

    def _welcome(self, payload: bytes) -> None:
        birth = self._expected.popleft()
        self._limit.end()  # Loading a large state may take longer than a call.
        self.take_in(birth, self._make(birth, unpack(payload)[0]))
        self._limit.begin()

    # -- the service ---------------------------------------------------------------------------------------------

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._gauges_at:
            self._gauges_at = now + GAUGES_EVERY_S
            self._send_gauges()

    def _send_gauges(self) -> None:
        gauges = {worker.name: _gauges(worker) for worker in self._down}
        if self._down:
            first = self._down[0].name
            looks = self._limit.busy.gauges()
            gauges[first] = replace(self._host.gauges(gauges[first]), turns=self._turns.counts, looks=looks)
        self._send(Gauges(gauges))

    def _send(self, message: FromHost) -> None:
        self._control.send(Kind.ASK, encode(message))
        try:
            self._control.flush()
        except ConnectionClosed:
            self._service_gone()

    def _hear_service(self, _events: int = READ) -> None:
        try:
            self._control.flush()
            for kind, message in self._control.receive():
                if kind == Kind.PLAN:
                    self._guard(self._welcome, message)
                else:
                    self._follow(message)
        except ConnectionClosed:
            self._service_gone()

    def _follow(self, payload: bytes) -> None:
        try:
            message = read_by_host(payload)
        except Malformed as error:
            self._fail(error)
            return
        if not isinstance(message, ToWorker):
            self.stop()
        elif message.worker in self._workers:
            self._guard(self._workers[message.worker].stage.follow, message.order)
            # Stop watching what it has closed before another descriptor can get its number.
            self._watch_host()

    def _service_gone(self) -> None:
        if not self._stopping:
            LOG.info("the service closed the line: the life is over")
        self.stop()


def _gauges(worker: Resident) -> WorkerGauges:
    """Return a worker's gauges with those of its task."""
    return replace(worker.stage.gauges(), attached=worker.task.attached, busy=worker.task.busy)
