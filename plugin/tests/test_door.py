"""Who connects to a worker is not waited for."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lowtide.wire import Kind, head
from lowtide.worker.door import NEWCOMERS, Door
from lowtide.worker.link import Link
from lowtide.worker.watch import Watch
from lowtide_tracker.handshake import HELLO_BYTES, PROOF_BYTES, ClientHandshake, HandshakeError

SECRET = b"the secret of a test, 32 bytes.."
PATIENCE_S = 0.3


class Entrance:
    """A door that is watched, and who was let in."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.asked: list[dict[str, Any]] = []
        self.links: list[Link] = []
        self.door = Door(self.listener, SECRET, self.watch, self._ask, PATIENCE_S)

    def _ask(self, link: Link, question: dict[str, Any]) -> None:
        self.links.append(link)
        self.asked.append(question)

    def turn(self) -> float:
        """All that is to be done now; returns how long it took, in seconds."""
        begun = time.monotonic()
        while self.watch.turn(0.02):
            pass
        self.door.tick()
        return time.monotonic() - begun

    def come(self) -> socket.socket:
        connection = socket.create_connection(self.listener.getsockname(), 1.0)
        self.turn()
        return connection

    def close(self) -> None:
        self.watch.close()
        self.listener.close()


@pytest.fixture
def entrance() -> Iterator[Entrance]:
    opened = Entrance()
    yield opened
    opened.close()


def closed(connection: socket.socket) -> bool:
    """Whether the door has closed the connection, after its greeting."""
    connection.settimeout(0.2)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


def ask(connection: socket.socket, turn: Callable[[], object], secret: bytes = SECRET) -> None:
    shake = ClientHandshake(secret, bytes(32))
    hello = connection.recv(HELLO_BYTES)
    for byte in shake.reply(hello):  # One by one: the door gathers them.
        connection.send(bytes((byte,)))
    turn()
    shake.check(hello, connection.recv(PROOF_BYTES))
    question = json.dumps({"epoch": 3}).encode()
    connection.send(head(Kind.ATTACH, len(question)) + question)
    turn()


def test_a_peer_that_proves_the_secret_is_handed_over_with_its_question(entrance: Entrance) -> None:
    ask(entrance.come(), entrance.turn)
    assert entrance.asked == [{"epoch": 3}]


def test_a_silent_peer_holds_nobody_up_and_is_sent_away(entrance: Entrance) -> None:
    silent = entrance.come()
    silent.send(b"LOW")
    assert entrance.turn() < 0.1
    ask(entrance.come(), entrance.turn)
    assert entrance.asked == [{"epoch": 3}]
    time.sleep(PATIENCE_S)
    entrance.turn()
    assert closed(silent)


def test_a_dripping_peer_is_sent_away_too(entrance: Entrance) -> None:
    dripping = entrance.come()
    for _ in range(4):
        dripping.send(b"L")
        entrance.turn()
        time.sleep(PATIENCE_S / 3)
    entrance.turn()
    assert closed(dripping)


def test_a_stranger_is_refused(entrance: Entrance) -> None:
    stranger = entrance.come()
    with pytest.raises((HandshakeError, OSError)):
        ask(stranger, entrance.turn, b"another secret of 32 bytes......")
    assert closed(stranger)
    assert entrance.asked == []


def test_a_crowd_keeps_nobody_out(entrance: Entrance) -> None:
    crowd = [entrance.come() for _ in range(NEWCOMERS + 2)]
    ask(entrance.come(), entrance.turn)
    assert entrance.asked == [{"epoch": 3}]
    assert [closed(peer) for peer in crowd[:3]] == [True, True, True]
    assert not closed(crowd[-1])


def test_the_tasks_of_all_workers_may_come_at_once(entrance: Entrance) -> None:
    """At an epoch's beginning, beside those who come for nothing."""
    entrance.door.workers = 5
    entrance.door._patience_s = 60.0
    came = [entrance.come() for _ in range(NEWCOMERS + 5)]
    assert not any(closed(connection) for connection in came)
    entrance.come()
    assert closed(came[0])
    for connection in came:
        connection.close()
