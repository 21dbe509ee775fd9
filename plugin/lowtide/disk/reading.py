"""A process that reads the state on disk for snapshots, as it was when it was asked to pin it.

A fork of the host cannot use the host's environment, so this process opens it itself, once, and begins transactions
when told. The host writes nothing from its word until it hears that they have begun: then all of them, and the host's
memory, are as of one moment.

    python -m lowtide.disk.reading FOLDER BYTES DESCRIPTOR PARENT

BYTES is the most that the store may become. Over the descriptor, a socket, come `PIN` bytes, each with one socket or
more. Each gets a transaction, and then the answer is `PINNED`. Over such a socket come requests for ranges and keys,
until it closes.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

import msgspec

from lowtide.disk.store import MOST_READERS, lmdb, read_keys, read_range
from lowtide.process.parent import die_with
from lowtide.process.wire import ConnectionClosed, receive_exactly

PIN, PINNED = b"p", b"P"
MOST_SOCKETS = 4
"""So many sockets may come with one word."""
LENGTH_BYTES = 4


class Keys(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request: the values of keys, None where there is none."""

    keys: list[bytes]


class Range(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request: up to `limit` keys with their values from `first` on and below `end`."""

    first: bytes
    end: bytes
    limit: int


encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(Keys | Range).decode


def send_message(to: socket.socket, message: bytes) -> None:
    """Send some bytes with their length before them."""
    to.sendall(len(message).to_bytes(LENGTH_BYTES, "big") + message)


def receive_message(of: socket.socket) -> bytes:
    """Receive what `send_message` sent; empty if the other end has closed."""
    try:
        return receive_exactly(of, int.from_bytes(receive_exactly(of, LENGTH_BYTES), "big"))
    except ConnectionClosed:
        return b""


def serve(environment: Any, control: socket.socket) -> None:
    """Pin when told, until the other end closes."""
    while True:
        try:
            words, descriptors, _, _ = socket.recv_fds(control, 1, MOST_SOCKETS)
        except ConnectionResetError:  # The other end closed without having read all.
            return
        if not words:
            return
        asked = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        begun = [(each, environment.begin()) for each in asked]
        control.sendall(PINNED)
        for each, transaction in begun:
            threading.Thread(target=_answer, args=(each, transaction), daemon=True).start()


def _answer(asked: socket.socket, transaction: Any) -> None:
    """Answer one socket's requests as of a transaction."""
    with asked, suppress(OSError):
        try:
            while message := receive_message(asked):
                wanted = _decode_request(message)
                if isinstance(wanted, Keys):
                    answer: Any = read_keys(transaction, wanted.keys)
                else:
                    answer = read_range(transaction, wanted.first, wanted.end, wanted.limit)
                send_message(asked, encode(answer))
        finally:
            transaction.abort()


def main() -> None:
    """Run the process."""
    folder, max_bytes, descriptor, parent = sys.argv[1:]
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    environment = lmdb().open(
        folder,
        # Without it, it has what the store took when this process began: a larger one cannot be read any more.
        map_size=int(max_bytes),
        readonly=True,
        max_readers=MOST_READERS,
        readahead=False,
        max_spare_txns=8,
    )
    with socket.socket(fileno=int(descriptor)) as control:
        control.sendall(PINNED)
        serve(environment, control)


if __name__ == "__main__":
    main()
