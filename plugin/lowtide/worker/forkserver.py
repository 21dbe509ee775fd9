"""The fork server: one per executor, without threads; imports everything once and forks host processes.

The executor's plugin sends it a `ForkServerStart` over standard input, and then orders to `MakeWorker`; it answers over
standard output with `ForkServerReady`, and with `Forked` or `Failed`.

A host has the number of its first worker, for which it is forked; orders for more of its workers are passed on to it.
The server ends when its standard input closes, and its hosts end with it: the kernel kills them when their parent dies.
It reports to the service how each of its hosts ended (`HostDied`), and kills workers that the service names (`Kill`).
"""

import ctypes
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from lowtide.assignment.birth import Birth
from lowtide.assignment.messages import (
    Failed,
    Forked,
    ForkServerHello,
    ForkServerReady,
    ForkServerStart,
    HostDied,
    MakeWorker,
    Malformed,
    StartRelay,
    encode,
    line,
    read_by_fork_server,
    read_fork_server_start,
    read_from_child,
    read_order,
)
from lowtide.logs import log_to_stderr
from lowtide.process.credentials import server_tls
from lowtide.process.doors import DoorKind
from lowtide.process.interpreter import versions
from lowtide.process.pandas_later import leave_pandas_for_later
from lowtide.process.sockets_folder import SocketsRefused
from lowtide.process.wire import ConnectionClosed, Kind, MessageReader, connect, send
from lowtide.worker.host_doors import HostDoors
from lowtide_snapshots.cause import Cause
from lowtide_tracker.unix import forget

LOG = logging.getLogger(__name__)
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
RECEIVE_BYTES = 1 << 16
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Keeps numpy and pyarrow from starting threads on import: a fork would keep their locks held."""
GRACE_S = 4.0
"""The time hosts have to end; the executor waits a little longer for this process."""


@dataclass(slots=True)
class Child:
    """A host process.

    Attributes:
        birth: The first worker's birth.
        near: The address to which tasks of this executor connect.
        orders: The line to it, for more workers.
        workers: The names of all its workers.
    """

    birth: Birth
    near: str
    orders: socket.socket
    workers: list[str]


@dataclass(slots=True)
class RelayDoor:
    """The place at which the hosts of a life find its relay, which runs if one of them has asked for it.

    Attributes:
        listener: Kept here, so that hosts wait in its queue while one relay takes the place of another.
        address: Its address.
        order: What was asked for; None as long as nothing was.
        pid: The relay's; 0 while there is none.
    """

    listener: socket.socket
    address: str
    order: StartRelay | None = None
    pid: int = 0


class ForkServer:
    """Serves one executor until its standard input closes."""

    def __init__(self, first: ForkServerStart) -> None:
        self._first = first
        self._secret = bytes.fromhex(first.secret)
        self._children: dict[int, Child] = {}
        self._relays: dict[int, RelayDoor] = {}
        """By life."""
        self._selector = selectors.DefaultSelector()
        self._link = connect(first.service, self._secret)
        kind = DoorKind.of(first.service)
        host = "" if kind == DoorKind.UNIX else str(socket.getaddrinfo(first.host, None, socket.AF_INET)[0][4][0])
        self._doors = HostDoors(kind, host)
        if kind == DoorKind.TLS:
            server_tls(self._secret)  # Made once, for all hosts.
        self._orders = MessageReader()
        send(self._link, Kind.ASK, encode(self._hello()))

    def _hello(self) -> ForkServerHello:
        return ForkServerHello(
            executor=self._first.executor,
            host=self._first.host,
            executable=sys.executable,
            python=versions(),
            cores=len(os.sched_getaffinity(0)),
        )

    def run(self, lines: int, out: int) -> None:
        """Serve lines from the descriptor ``lines``, answer on ``out``."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        selector = self._selector

        def close() -> None:
            selector.close()
            for descriptor in (lines, out, wake_read, wake_write):
                os.close(descriptor)

        selector.register(lines, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        selector.register(self._link, selectors.EVENT_READ)
        _say(out, ForkServerReady(os.getpid()))
        pending = b""
        while True:
            for key, _ in selector.select():
                if key.fd == wake_read:
                    os.read(wake_read, 4096)
                    self._reap(close)
                elif isinstance(key.data, Child):
                    self._hear_child(key.data, close)
                elif key.fileobj is self._link:
                    self._hear_service()
                else:
                    data = os.read(lines, 65536)
                    if not data:
                        self._end_children()
                        return
                    *whole, pending = (pending + data).split(b"\n")
                    for order in whole:
                        _say(out, self._made(order, close))

    def _hear_service(self) -> None:
        """Follow the service's orders, until it has gone."""
        try:
            data = self._link.recv(RECEIVE_BYTES)
            for _, message in self._orders.feed(data):
                self._kill(message)
        except (OSError, ConnectionClosed):
            data = b""
        if not data:
            self._selector.unregister(self._link)

    def _kill(self, message: bytes) -> None:
        try:
            order = read_by_fork_server(message)
        except Malformed as error:
            LOG.error("%s", error)
            return
        for pid, child in self._children.items():
            left = sorted(set(child.workers) & set(order.workers))
            if child.birth.incarnation == order.incarnation and left:
                LOG.warning("killing worker %s (pid %d): it outlives its life", ", ".join(left), pid)
                os.kill(pid, signal.SIGKILL)  # It is not reaped yet, so the pid is still its own.

    def _made(self, message: bytes, close: Callable[[], None]) -> Forked | Failed:
        """Make a worker, in its host if that lives, else in a new one."""
        try:
            order = read_order(message)
            for child in self._children.values():
                if (child.birth.incarnation, child.birth.host) == (order.incarnation, order.host):
                    return self._hand_on(child, order)
            return self._fork_host(order, close)
        except (Malformed, SocketsRefused) as error:
            return Failed(error.cause())
        except OSError as error:
            return Failed(Cause("loss", f"cannot open a socket or fork a process: {error}"))

    @staticmethod
    def _hand_on(child: Child, order: MakeWorker) -> Forked | Failed:
        try:
            child.orders.sendall(line(order))
        except OSError as error:
            return Failed(Cause("loss", f"its host, that of worker {child.birth.name}, takes no orders: {error}"))
        child.workers.append(order.worker)
        return Forked(child.near)

    def _fork_host(self, order: MakeWorker, close: Callable[[], None]) -> Forked:
        birth = Birth(
            order.worker,
            order.level,
            order.number,
            order.incarnation,
            order.host,
            self._first.executor,
            self._first.service,
            self._secret,
            self._relay_at(order.incarnation),
        )
        parent = os.getpid()
        with ExitStack() as childs:
            doors = self._doors.open(childs)
            ours, theirs = socket.socketpair()
            childs.enter_context(theirs)
            pid = os.fork()
            if pid == 0:
                ours.close()
                for door in self._relays.values():
                    door.listener.close()
                self._become(f"the host of worker {birth.name}", parent, close, partial(_work, birth, doors, theirs))
        near = doors[0][1]
        child = self._children[pid] = Child(birth, near, ours, [birth.name])
        self._selector.register(ours, selectors.EVENT_READ, child)
        return Forked(near)

    # -- relays ------------------------------------------------------------------------------------------------------

    def _relay_at(self, incarnation: int) -> str:
        """Return where the hosts of a life find its relay; empty if there can be none."""
        if incarnation not in self._relays:
            door = self._doors.relay()
            if door is None:
                return ""
            self._relays[incarnation] = RelayDoor(*door)
        return self._relays[incarnation].address

    def _hear_child(self, child: Child, close: Callable[[], None]) -> None:
        """Start the relay that a host asks for, unless it runs."""
        data = b""
        with suppress(OSError):
            data = child.orders.recv(RECEIVE_BYTES)
        if not data:
            self._unwatch(child)
            return
        try:
            order = read_from_child(data.partition(b"\n")[0])
        except Malformed as error:
            LOG.error("%s", error)
            return
        door = self._relays[child.birth.incarnation]
        if door.order is None:
            door.order = order
            self._fork_relay(child.birth.incarnation, door, close)

    def _fork_relay(self, incarnation: int, door: RelayDoor, close: Callable[[], None]) -> None:
        parent = os.getpid()
        door.pid = os.fork()
        if door.pid == 0:
            self._become("the relay", parent, close, partial(self._relay, incarnation, door))

    def _relay(self, incarnation: int, door: RelayDoor) -> int:
        from lowtide.worker.relay import serve

        assert door.order is not None, "somebody has asked for it"
        executor = self._first.executor
        return serve(door.listener, door.order, secret=self._secret, incarnation=incarnation, executor=executor)

    def _relay_ended(self, pid: int, status: int, close: Callable[[], None]) -> None:
        """Start another relay in the place of one that died; not of one that knows that the life is over."""
        for incarnation, door in self._relays.items():
            if door.pid == pid:
                door.pid = 0
                if os.waitstatus_to_exitcode(status):
                    LOG.warning("the relay of life %d (pid %d) died: another one takes its place", incarnation, pid)
                    self._fork_relay(incarnation, door, close)

    def _end_relay(self, incarnation: int) -> None:
        """End a life's relay: none of its hosts is left."""
        door = self._relays.pop(incarnation, None)
        if door is None:
            return
        if door.pid:
            os.kill(door.pid, signal.SIGKILL)  # It is not reaped yet, so the pid is still its own.
        door.listener.close()
        forget(door.address)

    def _unwatch(self, child: Child) -> None:
        with suppress(KeyError, ValueError):  # It may have been read to its end, or be closed.
            self._selector.unregister(child.orders)

    # -- children ----------------------------------------------------------------------------------------------------

    def _become(self, what: str, parent: int, close: Callable[[], None], work: Callable[[], int]) -> None:
        status = 1
        try:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._link.close()
            for child in self._children.values():
                child.orders.close()
            close()
            status = work()
        except BaseException:
            LOG.exception("%s failed", what)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _end_children(self) -> None:
        """Ask the hosts to deliver what they hold and end; the kernel kills those that take too long."""
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while self._children and time.monotonic() < deadline:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid:
                self._children.pop(pid, None)
            else:
                time.sleep(0.01)
        self._doors.close()

    def _reap(self, close: Callable[[], None]) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._children:
                self._relay_ended(pid, status, close)
                continue
            code = os.waitstatus_to_exitcode(status)
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            child = self._children.pop(pid)
            self._unwatch(child)
            child.orders.close()
            if not any(other.birth.incarnation == child.birth.incarnation for other in self._children.values()):
                self._end_relay(child.birth.incarnation)
            forget(child.near)
            with suppress(OSError):  # The service may have gone; then there is nothing to report to.
                died = HostDied(incarnation=child.birth.incarnation, workers=child.workers, pid=pid, how=how)
                send(self._link, Kind.ASK, encode(died))


def _work(birth: Birth, doors: list[tuple[socket.socket, str]], orders: socket.socket) -> int:
    from lowtide.worker.main import work

    return work(birth, doors, orders)


def _say(out: int, message: ForkServerReady | Forked | Failed) -> None:
    os.write(out, line(message))


def _import_all(store: str) -> None:
    """Import what workers and the writers of their snapshots need, so that a fork takes milliseconds."""
    import cloudpickle  # noqa: F401
    import confluent_kafka  # noqa: F401
    import msgspec  # noqa: F401
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
    import xxhash  # noqa: F401

    import lowtide.flow.schema.defaults
    import lowtide.worker.main
    import lowtide.worker.stage  # noqa: F401
    from lowtide_snapshots.stores import prepare

    prepare(store)
    leave_pandas_for_later()

    # Imports stay: no worker's collector need walk through them or copy their pages.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Run a fork server; standard output is for answers only, so what user code prints goes to standard error."""
    # A terminal's Ctrl-C reaches all processes; the driver ends those it started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(SINGLE_THREADED)
    lines, out = os.dup(0), os.dup(1)
    for descriptor in (lines, out):
        os.set_inheritable(descriptor, False)
    first = b""
    while not first.endswith(b"\n"):
        byte = os.read(lines, 1)
        if not byte:
            return
        first += byte
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    log_to_stderr("worker")
    known = read_fork_server_start(first)
    _import_all(known.store)
    try:
        server = ForkServer(known)
    except SocketsRefused as error:
        sys.exit(str(error))
    server.run(lines, out)


if __name__ == "__main__":
    main()
