"""Strangers at every door, with real sockets: a peer with the secret gets in beside them, and nothing of it grows."""

from __future__ import annotations

import gc
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from doors import DOORS, Opened
from hanging import HANGS_S

from lowtide_tracker.unix import connected

"""A second, on a machine with much else to do; a stranger that nobody waits behind stays for twice as long."""
GIGABYTE = 1 << 30
MIB = 1 << 20

Stop = Callable[[], bool]


@pytest.fixture(name="door", params=sorted(DOORS))
def _door(request: pytest.FixtureRequest) -> Iterator[Opened]:
    with DOORS[request.param]() as opened:
        yield opened


@contextmanager
def strangers(number: int, door: Opened) -> Iterator[list[socket.socket]]:
    """So many that connect at once, and say nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(connected(door.address, HANGS_S)) for _ in range(number)]


@contextmanager
def meanwhile(attack: Callable[[Stop], None]) -> Iterator[None]:
    """Let an attack go on in a thread of its own."""
    over = threading.Event()
    thread = threading.Thread(target=attack, args=(over.is_set,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(HANGS_S)
        assert not thread.is_alive()


def entered(door: Opened) -> float:
    """Enter; how long it took, in seconds."""
    began = time.monotonic()
    door.enter()
    return time.monotonic() - began


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def ended(connection: socket.socket) -> bool:
    connection.settimeout(HANGS_S)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("number", [60, 500])
def test_a_silent_crowd_keeps_nobody_out(door: Opened, number: int) -> None:
    with strangers(number, door):
        assert entered(door) < HANGS_S
        assert entered(door) < HANGS_S


def test_a_silent_crowd_takes_next_to_no_memory(door: Opened) -> None:
    door.enter()
    before = resident_bytes()
    with strangers(500, door):
        door.enter()
        assert resident_bytes() - before < 16 * MIB


def test_a_crowd_that_comes_again_at_once_keeps_nobody_out(door: Opened) -> None:
    def attack(over: Stop) -> None:
        crowd = {each.fileno(): each for each in (_come(door) for _ in range(300))}
        poll = select.poll()
        for descriptor in crowd:
            poll.register(descriptor, select.POLLIN | select.POLLHUP)
        while not over():
            for descriptor, _ in poll.poll(50):
                connection = crowd[descriptor]
                with suppress(OSError):
                    if connection.recv(1 << 16):
                        continue  # A greeting.
                poll.unregister(descriptor)
                connection.close()
                del crowd[descriptor]
                again = _come(door)
                crowd[again.fileno()] = again
                poll.register(again, select.POLLIN | select.POLLHUP)
        for connection in crowd.values():
            connection.close()

    with meanwhile(attack):
        time.sleep(0.5)
        for _ in range(4):
            assert entered(door) < HANGS_S


def _come(door: Opened) -> socket.socket:
    connection = connected(door.address, HANGS_S)
    connection.settimeout(0)
    return connection


def test_a_crowd_that_drips_keeps_nobody_out(door: Opened) -> None:
    """Each speaks as one should, a byte at a time, and never gets to its proof."""

    def attack(over: Stop) -> None:
        crowd: list[socket.socket] = []
        for _ in range(150):
            with suppress(OSError):
                crowd.append(door.greet(connected(door.address, HANGS_S)))
        for byte in door.begins:
            for connection in crowd:
                with suppress(OSError):
                    connection.send(bytes([byte]))
            if over():
                break
            time.sleep(0.05)
        for connection in crowd:
            connection.close()

    with meanwhile(attack):
        for _ in range(5):
            assert entered(door) < HANGS_S
            time.sleep(0.3)


def test_who_pours_in_gigabytes_fills_nothing(door: Opened) -> None:
    """Announced or not: without a proof no more is taken than a greeting."""
    with strangers(100, door) as crowd:
        door.enter()
        before, poured = resident_bytes(), 0
        until, chunk = time.monotonic() + 1.5, b"\xff" * MIB
        for connection in crowd:
            connection.setblocking(False)
        while time.monotonic() < until:
            for connection in crowd:
                with suppress(OSError):
                    poured += connection.send(chunk)
        assert poured < GIGABYTE
        assert resident_bytes() - before < 48 * MIB
        assert entered(door) < HANGS_S


def test_those_who_speak_another_language_are_sent_away_at_once(door: Opened) -> None:
    with strangers(20, door) as crowd:
        for connection in crowd:
            connection.sendall(b"\xff" * 200)
        began = time.monotonic()
        assert all(ended(connection) for connection in crowd)
        assert time.monotonic() - began < HANGS_S
    door.enter()


def test_no_connection_of_a_crowd_is_left(door: Opened) -> None:
    door.enter()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with strangers(200, door):
            door.enter()
    until = time.monotonic() + HANGS_S
    while len(os.listdir("/proc/self/fd")) > before + 5:
        assert time.monotonic() < until
        time.sleep(0.05)
