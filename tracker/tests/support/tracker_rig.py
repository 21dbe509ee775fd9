"""A tracker by itself, and a server in a thread with its clients, over real sockets on loopback."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable

from hanging import HANGS_S

from lowtide_tracker import (
    Flush,
    Graph,
    MinTimes,
    Notice,
    Tracker,
    TrackerClient,
    TrackerError,
    TrackerServer,
)
from lowtide_tracker.handshake import HELLO_BYTES, PROOF_BYTES, ClientHandshake
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.messages import Hello, Message, Welcome
from lowtide_tracker.wire import decode, encode

SECRET = bytes(range(32))
INCARNATION = 3
GRAPH = Graph({1: [], 2: [1]})


class Scribe:
    """Numbers the flushes of one worker."""

    def __init__(self, tracker: Tracker, worker: int = 1) -> None:
        self.tracker, self.worker, self.number = tracker, worker, 0

    def acks(self, *acks: tuple[int, int, int], beats: dict[int, int] | None = None) -> list[Notice]:
        return self.send(Flush.of(self.worker, self.number + 1, acks, (beats or {}).items()))

    def send(self, flush: Flush) -> list[Notice]:
        notices = self.tracker.receive(flush)
        self.number = flush.number
        self.tracker.check()
        return notices


def wait(done: Callable[[], object]) -> None:
    until = time.monotonic() + HANGS_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.002)


class Client(TrackerClient):
    """A client that can wait."""

    def hear(self, done: Callable[[MinTimes], bool]) -> list[Notice]:
        """Receives until what was heard satisfies ``done``."""
        heard: list[Notice] = []
        until = time.monotonic() + HANGS_S
        while not done(self.min_times):
            assert time.monotonic() < until, f"heard only {heard}"
            heard += self.receive(0.1)
        return heard

    def hear_up_to(self, tick: int) -> list[Notice]:
        """Receives until the global min time is there."""
        return self.hear(lambda at: at.global_min >= tick)


class Raw:
    """A connection without a client: after the handshake, or after `Hello` and `Welcome`."""

    def __init__(self, port: int, hello: Hello | None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), HANGS_S)
        self._reader = MessageReader()
        shake = ClientHandshake(SECRET, b"n" * 32)
        self.sendall(shake.reply(self.socket.recv(HELLO_BYTES, socket.MSG_WAITALL)))
        self.socket.recv(PROOF_BYTES, socket.MSG_WAITALL)
        if hello is not None:
            self.sendall(encode(hello))
            assert isinstance(self.messages(1)[0], Welcome)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def sendall(self, data: bytes) -> None:
        self.socket.sendall(data)

    def messages(self, count: int) -> list[Message]:
        """So many messages, or all until the connection ends."""
        seen: list[Message] = []
        while len(seen) < count:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                break
            if not data:
                break
            seen += [decode(kind, payload) for kind, payload in self._reader.feed(data)]
        return seen


class Running:
    """A server in a thread of its own."""

    def __init__(self, tracker: Tracker, sock: socket.socket | None = None) -> None:
        self.faults: list[TrackerError] = []
        self.notices: list[Notice] = []
        self.server = TrackerServer(
            tracker, secret=SECRET, incarnation=INCARNATION, on_fault=self.faults.append, on_notice=self.notices.append
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.address = asyncio.run_coroutine_threadsafe(self.server.start(sock=sock), self._loop).result(HANGS_S)
        self.port = int(self.address.rpartition(":")[2])

    def stop(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self.server.close(), self._loop).result(HANGS_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(HANGS_S)
            self._loop.close()

    def do(self, what: Callable[[], object]) -> None:
        """Does something in the server's thread."""

        async def in_loop() -> None:
            what()

        asyncio.run_coroutine_threadsafe(in_loop(), self._loop).result(HANGS_S)

    def wait(self, done: Callable[[], object]) -> None:
        wait(done)

    def raw(self, hello: Hello | None = None) -> Raw:
        return Raw(self.port, hello)
