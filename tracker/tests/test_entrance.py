"""An entrance of two strangers at most, in a loop of its own and with real sockets."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_tracker import entrance as module
from lowtide_tracker.entrance import Entrance, listen
from lowtide_tracker.strangers import Strangers

GRACE_S = 0.1
PASSWORD = b"open"


class Guest(asyncio.Protocol):
    """Proves itself by a word, and is then sent what it sends."""

    def __init__(self, prove: Callable[[asyncio.BaseProtocol], None]) -> None:
        self._prove = prove
        self._proved = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._proved and data == PASSWORD:
            self._proved = True
            self._prove(self)
        if self._proved:
            self._transport.write(data)


class Door:
    """An entrance, and those who come to it."""

    def __init__(self, limit_s: float = HANGS_S, tls: ssl.SSLContext | None = None) -> None:
        strangers: Strangers[Any] = Strangers(most=2, grace_s=GRACE_S, limit_s=limit_s)
        self.entrance = Entrance(listen("127.0.0.1"), self._guest, tls=tls, strangers=strangers)
        self.strangers = strangers
        self.guests = 0

    def _guest(self) -> Guest:
        self.guests += 1
        return Guest(self.entrance.proved)

    async def come(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.entrance.address)

    async def enter(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As somebody who knows the word."""
        reader, writer = await self.come()
        writer.write(PASSWORD)
        async with asyncio.timeout(HANGS_S):
            assert await reader.readexactly(len(PASSWORD)) == PASSWORD
        return reader, writer


def visit(
    visitor: Callable[[Door], Coroutine[Any, Any, None]], limit_s: float = HANGS_S, tls: ssl.SSLContext | None = None
) -> None:
    """Run a test in a loop; nothing may be left of the connections at its end."""

    async def run() -> None:
        door = Door(limit_s, tls)
        door.entrance.open()
        try:
            await visitor(door)
        finally:
            await door.entrance.close()
        assert (len(door.strangers), len(door.entrance._connections)) == (0, 0)

    asyncio.run(run(), debug=True)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(HANGS_S):
            return await reader.read() == b""
    except ConnectionResetError:
        return True


def test_strangers_make_room_one_after_the_other_but_who_has_proved_itself_stays() -> None:
    async def visitor(door: Door) -> None:
        known, knows = await door.enter()
        silent = [await door.come() for _ in range(6)]
        await door.enter()
        assert all([await ended(reader) for reader, _ in silent[:5]])
        knows.write(b"still here")
        assert await known.readexactly(10) == b"still here"

    visit(visitor)


def test_nobody_is_sent_away_within_its_grace() -> None:
    async def visitor(door: Door) -> None:
        loop = asyncio.get_running_loop()
        began, first = loop.time(), await door.come()
        for _ in range(8):
            await door.come()
        assert await ended(first[0])
        assert loop.time() - began >= GRACE_S

    visit(visitor)


def test_who_leaves_makes_room_at_once() -> None:
    async def visitor(door: Door) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(20):
            _, writer = await door.come()
            writer.close()
        began = loop.time()
        await door.enter()
        assert loop.time() - began < 20 / 2 * GRACE_S

    visit(visitor)


def test_a_stranger_goes_after_the_limit_though_nobody_waits() -> None:
    async def visitor(door: Door) -> None:
        reader, _ = await door.come()
        _, slow = dripping = await door.come()
        for _ in range(4):
            slow.write(b"x")
            await asyncio.sleep(0.1)
        assert await ended(reader)
        assert await ended(dripping[0])
        assert len(door.strangers) == 0

    visit(visitor, limit_s=0.3)


def test_nothing_is_spent_on_tls_with_who_says_nothing() -> None:
    async def visitor(door: Door) -> None:
        silent = [await door.come() for _ in range(5)]
        assert all([await ended(reader) for reader, _ in silent[:3]])
        assert door.guests == 0
        silent[3][1].write(b"no TLS")
        assert await ended(silent[3][0])
        assert door.guests == 1
        await door.entrance.close()
        assert await ended(silent[4][0])

    visit(visitor, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_an_entrance_that_has_no_more_descriptors_takes_the_next_ones_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def visitor(door: Door) -> None:
        accept, failures = socket.socket.accept, [OSError(24, "Too many open files")]

        def failing(listener: socket.socket) -> Any:
            if failures:
                raise failures.pop()
            return accept(listener)

        monkeypatch.setattr(socket.socket, "accept", failing)
        await door.enter()
        assert failures == []

    monkeypatch.setattr(module, "RETRY_S", 0.05)
    visit(visitor)
    assert [message for message in caplog.messages if "Too many open files" in message]


def test_a_connection_that_comes_as_an_entrance_closes_is_closed_with_it() -> None:
    async def visitor(door: Door) -> None:
        await door.enter()
        connection = socket.create_connection(door.entrance.address, HANGS_S)
        await asyncio.sleep(0)  # The loop learns of it in the very turn in which the entrance closes.
        await door.entrance.close()
        with connection, suppress(ConnectionResetError):
            assert connection.recv(1) == b""

    visit(visitor)


def test_it_listens_at_all_addresses_of_a_host_or_at_none() -> None:
    (one,) = listen("127.0.0.1")
    with one, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", one.getsockname()[1])
