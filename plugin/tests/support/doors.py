"""The doors at which strangers may stand: each a real server in this process, with somebody who knows how to enter."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from controlled import controlled
from hanging import HANGS_S
from seen import SHAPE, moment
from stage_rig import SECRET, Served

from lowtide.assignment.messages import Attach, encode, read_attach
from lowtide.events import EventLog
from lowtide.process.credentials import plain, secured, server_tls
from lowtide.process.doors import DoorKind, Doors
from lowtide.process.wire import Kind, connect, receive, send
from lowtide.service.reception import receive_on
from lowtide.service.workers.peer import Peer
from lowtide.worker.door import Door
from lowtide.worker.link import Link
from lowtide.worker.watch import Watch
from lowtide_tracker.handshake import MAGIC

CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303")
QUESTION = Attach(worker="1/0", incarnation=7, epoch=3)


@dataclass(frozen=True)
class Opened:
    """A door.

    Attributes:
        address: Where strangers come, `host:port` or `unix:/path`.
        enter: Comes, proves itself, asks and gets an answer; raises what prevents it.
        begins: What somebody sends who pretends to know what is spoken there.
        greet: Makes of a stranger's connection one over which that may be sent.
    """

    address: str
    enter: Callable[[], None]
    begins: bytes
    greet: Callable[[socket.socket], socket.socket] = lambda connection: connection


@contextmanager
def control() -> Iterator[Opened]:
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        job.watch.look(0.0, moment(5000))
        tls = ssl.create_default_context(cadata=job.certificate)

        def greet(connection: socket.socket) -> socket.socket:
            return tls.wrap_socket(connection, server_hostname="localhost")

        def enter() -> None:
            assert job.client().status().job == "index"

        yield Opened(job.address, enter, b"GET /status HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100, greet)


@contextmanager
def service(kind: DoorKind = DoorKind.TCP) -> Iterator[Opened]:
    async def talk(peer: Peer) -> None:
        while True:
            await peer.send(Kind.ASK, (await peer.receive())[1])

    with _loop() as do, listening(kind) as (listener, address):

        async def begin() -> Any:
            return receive_on([listener], SECRET, talk, _tls(kind))

        entrance = do(begin())
        try:
            yield _opened(address)
        finally:
            do(entrance.close())


@contextmanager
def tracker(kind: DoorKind = DoorKind.TCP) -> Iterator[Opened]:
    with listening(kind) as (listener, address), Served(tls=_tls(kind), listener=listener):
        yield _opened(address, answers=False)


@contextmanager
def worker(kind: DoorKind = DoorKind.TCP) -> Iterator[Opened]:
    watch, over = Watch(), threading.Event()
    links = []

    def asked(link: Link, question: Attach) -> None:
        link.send(Kind.ATTACH, encode(question))
        link.flush()
        links.append(link)

    def run() -> None:
        while not over.is_set():
            watch.turn(0.05)
            door.tick()

    with listening(kind) as (listener, address), listener:
        door = Door(listener, SECRET, watch, asked, tls=_tls(kind))
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield _opened(address)
        finally:
            over.set()
            thread.join(HANGS_S)
            watch.close()
            for link in links:
                link.close()


DOORS: dict[str, Callable[[], AbstractContextManager[Opened]]] = {
    "control": control,
    "service": service,
    "tracker": tracker,
    "worker": worker,
    "service under TLS": partial(service, DoorKind.TLS),
    "tracker under TLS": partial(tracker, DoorKind.TLS),
    "worker under TLS": partial(worker, DoorKind.TLS),
    "service on a Unix socket": partial(service, DoorKind.UNIX),
    "tracker on a Unix socket": partial(tracker, DoorKind.UNIX),
    "worker on a Unix socket": partial(worker, DoorKind.UNIX),
}


@contextmanager
def listening(kind: DoorKind) -> Iterator[tuple[socket.socket, str]]:
    """A door's socket, which belongs to who takes it, and its address."""
    doors = Doors(kind, "127.0.0.1")
    try:
        yield doors.open("door")
    finally:
        doors.close()


def _tls(kind: DoorKind) -> ssl.SSLContext | None:
    return server_tls(SECRET) if kind == DoorKind.TLS else None


def _opened(address: str, *, answers: bool = True) -> Opened:
    """A door with the handshake; where nothing is answered, the server's own proof is what one gets.

    Under TLS a stranger begins with the head of a ClientHello.
    """

    def enter() -> None:
        with connect(address, SECRET) as connection:
            if answers:
                connection.settimeout(HANGS_S)
                send(connection, Kind.ASK, encode(QUESTION))
                assert read_attach(receive(connection)[1]) == QUESTION

    return Opened(plain(address), enter, (CLIENT_HELLO if secured(address) else MAGIC) + bytes(60))


@contextmanager
def _loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """An event loop in a thread, and what runs something in it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(HANGS_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANGS_S)
        loop.close()
