import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.process.wire import (
    MAX_MESSAGE_BYTES,
    ConnectionClosed,
    Kind,
    MessageReader,
    connect,
    head,
    receive,
    receive_exactly,
    send,
    tune,
)
from lowtide_tracker.handshake import REPLY_BYTES, HandshakeError, ServerHandshake
from lowtide_tracker.tcp import GONE_AFTER_S

SECRET = b"s" * 32


@given(st.lists(st.tuples(st.sampled_from(list(Kind)), st.binary(max_size=300)), max_size=20), st.data())
def test_messages_survive_any_cut_of_the_stream(messages: list[tuple[Kind, bytes]], data: st.DataObject) -> None:
    stream = b"".join(head(kind, len(payload)) + payload for kind, payload in messages)
    reader, got, at = MessageReader(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 64))
        got += reader.feed(stream[at : at + size])
        at += size
    assert got == messages


@pytest.mark.parametrize("length", [0, MAX_MESSAGE_BYTES + 1])
def test_an_impossible_length_is_refused_before_anything_is_kept(length: int) -> None:
    with pytest.raises(ConnectionClosed, match="announced a message"):
        MessageReader().feed(length.to_bytes(4, "little") + b"\x01")


def served(secret: bytes) -> tuple[str, list[BaseException]]:
    """A listener that takes one connection, answers one message with its payload, and collects what goes wrong."""
    listener = socket.create_server(("127.0.0.1", 0))
    errors: list[BaseException] = []

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            try:
                shake = ServerHandshake(secret, os.urandom(32))
                connection.sendall(shake.hello())
                connection.sendall(shake.answer(receive_exactly(connection, REPLY_BYTES)))
                _, payload = receive(connection)
                send(connection, Kind.ASK, payload)
            except BaseException as error:  # noqa: BLE001 - the test looks at it once the connection is closed
                errors.append(error)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}", errors


def test_both_ends_know_the_secret_and_talk() -> None:
    address, errors = served(SECRET)
    with connect(address, SECRET) as connection:
        send(connection, Kind.ASK, b"x" * 100_000)
        assert receive(connection) == (Kind.ASK, b"x" * 100_000)
    assert not errors


def test_a_stranger_is_refused_without_an_answer() -> None:
    address, errors = served(SECRET)
    with pytest.raises(ConnectionClosed):
        connect(address, os.urandom(32))
    assert isinstance(errors[0], HandshakeError)


def test_the_kernel_looks_whether_the_peers_machine_is_there() -> None:
    with socket.socket() as connection:
        tune(connection)
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [connection.getsockopt(socket.IPPROTO_TCP, name) for name in names] == [5, 2, 3]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_only_the_service_must_take_what_it_is_sent_in_time() -> None:
    """A worker that waits for Kafka reads nothing for long, and its task's connection must outlast that."""
    with socket.socket() as connection:
        tune(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    address, _ = served(SECRET)
    with connect(address, SECRET) as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == GONE_AFTER_S * 1000 == 11_000
