"""A proxy before a Kafka broker that can hold back the end of a transaction, as a network or a busy broker may.

It can also answer in the broker's place, with an error that is hard to bring a broker to.

A client whose connection breaks while it waits for an answer asks again on another one. The first request may still be
on its way, and come to the broker when the client has long gone on: this proxy decides when.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from tests.waiting import HANGS_S

from lowtide.testing.proxy import LossyProxy

PRODUCE, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, END_TXN, DESCRIBE_CLUSTER = 0, 3, 10, 17, 26, 60
NAMING = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
"""Requests whose answers name brokers by host and port."""
FLEXIBLE_FROM = {PRODUCE: 9, END_TXN: 3}
TOPIC_IDS_FROM = 13
"""The version of a produce answer from which on it names topics by 16 bytes."""
CHUNK = 1 << 16


@dataclass
class Held:
    """A request to end a transaction that is held back.

    Attributes:
        caught: Set once a request is held, and the connection that brought it is closed.
        released: Set once the broker has answered it.
        transactional_id: Whose transaction it ends; empty before it is caught.
        commits: Whether it asks for a commit, or an abort.
        error: The broker's answer, Kafka's error code; 0 if it has done as it was asked, -1 without an answer.
    """

    caught: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    transactional_id: str = ""
    commits: bool = False
    error: int = -1
    _request: bytes = b""
    _breaks: asyncio.Event = field(default_factory=asyncio.Event)
    _broker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None


@dataclass
class Answer:
    """An error that the next produce request is answered with, for its first partition.

    Attributes:
        error: Kafka's error code.
        given: Set once a client has been answered so.
        aborted: Set once a transaction was aborted after that.
    """

    error: int
    given: threading.Event = field(default_factory=threading.Event)
    aborted: threading.Event = field(default_factory=threading.Event)


class KafkaProxy:
    """Passes everything on to a broker on this machine, whose address it puts in the place of its own in answers.

    Args:
        broker: Its `host:port`; the host is that which it names itself by.
        within: Its `host:port` for who does not log in. What was held comes in there, as if the broker had taken it
            before the client's login expired, and been busy: it looks at a login as it takes a request. By default it
            comes on its own connection.

    Attributes:
        address: What clients connect to.
    """

    def __init__(self, broker: str, within: str = "") -> None:
        self._host, _, port = broker.rpartition(":")
        self._port = int(port)
        self._within = within
        self._held: Held | None = None
        self._answer: Answer | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka proxy", daemon=True)
        self._lines: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, self._host, 0), self._loop
        ).result(HANGS_S)
        self._own_port = int(self._server.sockets[0].getsockname()[1])
        self.address = f"{self._host}:{self._own_port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(HANGS_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANGS_S)
        self._loop.close()

    def hold(self, *, logs_in_again: bool = False) -> Held:
        """Hold the next request to end a transaction, until that id's next transaction has written something.

        Its connection is closed at once, or once the client is about to log in on it again. It does so on all of its
        connections equally often: on this one by the time it has on another one twice.
        """
        held = Held()
        if not logs_in_again:
            held._breaks.set()
        self._held = held
        return held

    def answer(self, error: int) -> Answer:
        """Answer the next produce request of a transaction with an error, though the broker takes it."""
        self._answer = Answer(error)
        return self._answer

    async def _close(self) -> None:
        self._server.close()
        for line in [*self._lines]:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._pass(reader, writer)
        finally:
            self._lines.discard(line)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker = await asyncio.open_connection(self._host, self._port)
        asked: dict[int, tuple[int, int, str]] = {}
        answers = asyncio.create_task(self._answers(broker[0], writer, asked))
        keeps, logins = False, 0
        try:
            while not keeps:
                request = await _frame(reader)
                api, version, correlation = struct.unpack_from(">hhi", request)
                identity = _transactional_id(api, version, request) if api in FLEXIBLE_FROM else ""
                asked[correlation] = (api, version, identity)
                if api == END_TXN and self._answer is not None and not _commits(request, version):
                    self._answer.aborted.set()
                keeps = api == END_TXN and self._keeps(request, version, broker)
                if not keeps:
                    _put(broker[1], request)
                    await broker[1].drain()
                held = self._held
                if api == SASL_HANDSHAKE and held is not None and held.caught.is_set():
                    logins += 1
                    if logins == 2:
                        held._breaks.set()
            assert held is not None, "it is kept for somebody"
            await held._breaks.wait()
        finally:
            answers.cancel()
            if not keeps:
                broker[1].close()

    def _keeps(self, request: bytes, version: int, broker: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
        """True if this request is the one to hold; then its connection to the broker is kept with it."""
        held = self._held
        if held is None or held.caught.is_set():
            return False
        held.transactional_id = _transactional_id(END_TXN, version, request)
        held.commits = _commits(request, version)
        held._request, held._broker = request, broker
        held.caught.set()
        return True

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int, str]]
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                answer = await _frame(reader)
                api, version, identity = asked.pop(int.from_bytes(answer[:4], "big"))
                if api in NAMING:
                    host = self._host.encode()
                    answer = answer.replace(host + _int(self._port), host + _int(self._own_port))
                held = self._held
                if held is not None and api == PRODUCE and identity and identity == held.transactional_id:
                    await self._release(held)
                said = self._answer
                if said is not None and not said.given.is_set() and api == PRODUCE and identity:
                    answer = _with_error(answer, version, said.error)
                    said.given.set()
                _put(writer, answer)
                await writer.drain()
        writer.close()

    async def _release(self, held: Held) -> None:
        """Let the broker have what was held, and wait for its answer."""
        assert held._broker is not None
        self._held = None
        reader, writer = held._broker
        # The broker may have been restarted meanwhile.
        with suppress(OSError, asyncio.IncompleteReadError):
            if self._within:
                writer.close()
                reader, writer = await asyncio.open_connection(*self._within.split(":"))
            _put(writer, held._request)
            answer = await _frame(reader)
            # Correlation, in flexible versions an empty list of tags, the time that it was throttled, the error.
            version = int.from_bytes(held._request[2:4], "big")
            held.error = struct.unpack_from(">h", answer, 9 if version >= FLEXIBLE_FROM[END_TXN] else 8)[0]
        writer.close()
        held.released.set()


class LossyKafkaProxy(LossyProxy):
    """A `LossyProxy` before a broker: it puts its own address in the place of the broker's in answers."""

    def __init__(self, server: str) -> None:
        self._names = _named(server), b""  # Connections come once the second is known.
        super().__init__(server)
        self._names = self._names[0], _named(self.address)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), server.makefile("rb") as answers:
            while size := answers.read(4):
                frame = answers.read(int.from_bytes(size, "big"))
                client.sendall(size + frame.replace(*self._names))
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)


def _named(address: str) -> bytes:
    """How a broker's answer names a broker."""
    host, _, port = address.rpartition(":")
    return host.encode() + _int(int(port))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def _put(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(_int(len(frame)) + frame)


def _int(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _transactional_id(api: int, version: int, request: bytes) -> str:
    """The first field of the request's body, after its header; empty where it is null."""
    place = 8
    size = struct.unpack_from(">h", request, place)[0]
    place += 2 + max(size, 0)
    if version < FLEXIBLE_FROM[api]:
        size = struct.unpack_from(">h", request, place)[0]
        return request[place + 2 : place + 2 + size].decode() if size > 0 else ""
    numbers = _varints(request, place + 1)  # After the header's tags, of which there are none.
    size, place = next(numbers)
    return request[place : place + size - 1].decode() if size > 1 else ""


def _commits(request: bytes, version: int) -> bool:
    """Whether the end of a transaction is a commit."""
    return bool(request[-2 if version >= FLEXIBLE_FROM[END_TXN] else -1])


def _with_error(answer: bytes, version: int, error: int) -> bytes:
    """A flexible produce answer with this error for its first partition."""
    _, place = next(_varints(answer, 5))  # How many topics; the header is a correlation and no tags.
    if version < TOPIC_IDS_FROM:
        size, place = next(_varints(answer, place))
        place += size - 1
    else:
        place += 16
    _, place = next(_varints(answer, place))  # How many partitions; then comes the first one's number.
    return answer[: place + 4] + struct.pack(">h", error) + answer[place + 6 :]


def _varints(data: bytes, place: int) -> Iterator[tuple[int, int]]:
    """Unsigned varints one after the other, each with where it ends."""
    while True:
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield value, place
