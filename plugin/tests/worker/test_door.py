"""Who connects to a worker is not waited for."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
from hanging import HANGS_S

from lowtide.assignment.messages import Attach, encode
from lowtide.process.wire import Kind, head
from lowtide.worker import door
from lowtide.worker.door import Door, Newcomer
from lowtide.worker.link import Link
from lowtide.worker.watch import Watch
from lowtide_tracker.handshake import HELLO_BYTES, PROOF_BYTES, ClientHandshake, HandshakeError
from lowtide_tracker.strangers import Strangers

SECRET = b"the secret of a test, 32 bytes.."
LIMIT_S = 0.3
GRACE_S = 0.1
MOST = 8
QUESTION = Attach(worker="1/0", incarnation=7, epoch=3)


class Entrance:
    """A door that is watched, and who was let in."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.asked: list[Attach] = []
        self.links: list[Link] = []
        strangers: Strangers[Newcomer] = Strangers(MOST, GRACE_S, LIMIT_S)
        self.door = Door(self.listener, SECRET, self.watch, self._ask, strangers)

    def _ask(self, link: Link, question: Attach) -> None:
        self.links.append(link)
        self.asked.append(question)

    def turn(self) -> None:
        """All that is to be done now."""
        while self.watch.turn(0.02):
            pass
        self.door.tick()

    def come(self) -> socket.socket:
        connection = socket.create_connection(self.listener.getsockname(), HANGS_S)
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
    """True if the door has closed the connection, after its greeting."""
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
    question = encode(QUESTION)
    connection.send(head(Kind.ATTACH, len(question)) + question)
    turn()


def test_a_peer_that_proves_the_secret_is_handed_over_with_its_question(entrance: Entrance) -> None:
    ask(entrance.come(), entrance.turn)
    assert entrance.asked == [QUESTION]


def test_a_question_that_cannot_be_read_is_refused_with_its_field(entrance: Entrance) -> None:
    task = entrance.come()
    shake = ClientHandshake(SECRET, bytes(32))
    task.send(shake.reply(task.recv(HELLO_BYTES)))
    entrance.turn()
    task.recv(PROOF_BYTES)
    question = b'{"type": "attach", "worker": "1/0", "incarnation": 7}'
    task.send(head(Kind.ATTACH, len(question)) + question)
    entrance.turn()
    assert b"`epoch`" in task.recv(4096)
    assert closed(task)
    assert entrance.asked == []


def test_a_silent_peer_holds_nobody_up_and_is_sent_away(entrance: Entrance) -> None:
    silent = entrance.come()
    silent.send(b"LOW")
    entrance.turn()
    ask(entrance.come(), entrance.turn)
    assert entrance.asked == [QUESTION]
    time.sleep(LIMIT_S)
    entrance.turn()
    assert closed(silent)


def test_a_dripping_peer_is_sent_away_too(entrance: Entrance) -> None:
    dripping = entrance.come()
    for _ in range(4):
        dripping.send(b"L")
        entrance.turn()
        time.sleep(LIMIT_S / 3)
    entrance.turn()
    assert closed(dripping)


def test_a_stranger_is_refused(entrance: Entrance) -> None:
    stranger = entrance.come()
    with pytest.raises((HandshakeError, OSError)):
        ask(stranger, entrance.turn, b"another secret of 32 bytes......")
    assert closed(stranger)
    assert entrance.asked == []


def test_a_task_that_never_asks_is_sent_away_too(entrance: Entrance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "PATIENCE_S", 0.1)
    task = entrance.come()
    shake = ClientHandshake(SECRET, bytes(32))
    task.send(shake.reply(task.recv(HELLO_BYTES)))
    entrance.turn()
    assert not closed(task)
    entrance.turn()
    assert closed(task)


def test_a_crowd_keeps_nobody_out(entrance: Entrance) -> None:
    *crowd, late = (socket.create_connection(entrance.listener.getsockname(), HANGS_S) for _ in range(MOST + 3))
    entrance.turn()
    assert not closed(crowd[0]), "it has its grace"
    time.sleep(GRACE_S)
    entrance.turn()
    ask(late, entrance.turn)
    assert entrance.asked == [QUESTION]
    assert [closed(peer) for peer in crowd[:3]] == [True, True, True]
    assert not closed(crowd[-1])


def test_a_task_that_has_proved_itself_is_pushed_out_by_nobody(entrance: Entrance) -> None:
    task = entrance.come()
    shake = ClientHandshake(SECRET, bytes(32))
    hello = task.recv(HELLO_BYTES)
    task.send(shake.reply(hello))
    entrance.turn()
    shake.check(hello, task.recv(PROOF_BYTES))
    for _ in range(3):
        for _ in range(MOST):
            entrance.come()
        time.sleep(GRACE_S)
    question = encode(QUESTION)
    task.send(head(Kind.ATTACH, len(question)) + question)
    entrance.turn()
    assert entrance.asked == [QUESTION]
