"""Messages between Lowtide's processes: ``u32 length | u8 kind | payload``, little-endian, length = 1 + payload bytes.

They follow the handshake of ``lowtide_tracker.handshake`` on the same connection. The JVM's half is
``plugin/jvm/src/io/lowtide/Channel.java`` and ``Kind.java``. This file, ``worker/`` and ``service/server.py``
own the sockets.
"""

import os
import socket
from enum import IntEnum

from lowtide.process.credentials import client_tls, plain, secured
from lowtide_tracker import message_reader, tcp
from lowtide_tracker.handshake import HELLO_BYTES, PROOF_BYTES, ClientHandshake
from lowtide_tracker.tls import Connection, TlsConnection
from lowtide_tracker.unix import connected

HEAD = message_reader.HEAD
MAX_MESSAGE_BYTES = message_reader.MAX_MESSAGE_BYTES
NONCE_BYTES = 32
CONNECT_TIMEOUT_S = 10.0
SOCKET_BUFFER_BYTES = 1 << 20


class Kind(IntEnum):
    """The first byte of a message."""

    ASK = 1
    """A question or an answer of the service, as JSON."""
    ATTACH = 2
    """A task asks to be taken by a worker, or the worker's answer, as JSON."""
    ROWS = 3
    """To a worker of level 0: records of one source partition."""
    FRAME = 4
    """To a worker of a later level: a frame."""
    END = 5
    """To a worker: this epoch's input is over; ``i64 epoch``."""
    OUT = 6
    """From a worker: ``i32 target | frame`` for a worker of the next level."""
    ENDED = 7
    """From a worker: this epoch's output is out; ``i64 epoch``."""
    FAILED = 8
    """From a worker: what went wrong, a `Cause` as JSON."""
    PLAN = 9
    """The deployment, pickled: from the driver to the service, from there to workers."""
    TAKEN = 10
    """From a worker: it has processed a message of kind ROWS and is free for the next; empty."""
    STORE = 11
    """A question to the store of snapshots in the service's memory, or its answer; see `lent_store`."""


class ConnectionClosed(Exception):
    """The peer closed the connection, between messages or within one."""


def head(kind: Kind, size: int) -> bytes:
    """The head of a message with ``size`` bytes of payload."""
    return HEAD.pack(size + 1, kind)


class MessageReader(message_reader.MessageReader):
    """Cuts a stream of bytes into messages; no I/O."""

    refused = ConnectionClosed


def receive_exactly(connection: Connection, size: int) -> bytes:
    """``size`` bytes from a blocking socket; ``ConnectionClosed`` when it ends before."""
    data = tcp.up_to(connection, size)
    if len(data) < size:
        raise ConnectionClosed("the peer closed the connection")
    return data


def tune(connection: Connection) -> None:
    """No delay for small messages, buffers that are bounded, and an end when the peer's machine has gone.

    What a slow reader leaves must not pile up in the kernel.
    """
    tcp.tune(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)


def connect(address: str, secret: bytes, limit_s: float = CONNECT_TIMEOUT_S) -> Connection:
    """A blocking connection to a door after the handshake, by the way that its address says (`process/doors.py`).

    Raises:
        OSError: no process listens there, or TLS failed.
        ConnectionClosed: it refused this process's secret.
        HandshakeError: it speaks another version or does not know the secret.
    """
    made = connected(plain(address), limit_s)
    connection: Connection = made
    try:
        tune(connection)
        # The service always reads. Between a task and its worker, where the reader may wait for Kafka, this would end
        # healthy lives.
        tcp.expect_acks(connection)
        if secured(address):
            connection = secure = TlsConnection(made, client_tls(secret))
            secure.shake()
        shake = ClientHandshake(secret, os.urandom(NONCE_BYTES))
        hello = receive_exactly(connection, HELLO_BYTES)
        connection.sendall(shake.reply(hello))
        shake.check(hello, receive_exactly(connection, PROOF_BYTES))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def send(connection: Connection, kind: Kind, payload: bytes) -> None:
    """Send one message on a blocking socket."""
    connection.sendall(head(kind, len(payload)) + payload)


def receive(connection: Connection) -> tuple[int, bytes]:
    """The next message of a blocking socket as ``(kind, payload)``; ``ConnectionClosed`` at its end."""
    length, kind = HEAD.unpack(receive_exactly(connection, HEAD.size))
    if not 1 <= length <= MAX_MESSAGE_BYTES:
        raise ConnectionClosed(f"a message of {length} bytes was announced, at most {MAX_MESSAGE_BYTES} may be")
    return kind, receive_exactly(connection, length - 1)
