"""Cuts TCP connections of some processes to one port, which takes root: the kernel ends the sockets it is given."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tests.listening import sockets_of, tcp_rows

OPEN = ("01", "02")
"""Established, and on the way there."""
NETLINK_SOCK_DIAG = 4
SOCK_DESTROY = 21
REQUEST_WITH_ANSWER = 5
ANY_COOKIE = 0xFFFFFFFF
ALL_STATES = 0xFFFFFFFF
EVERY_S = 0.005


@dataclass(frozen=True, slots=True)
class _Connection:
    """An end of a connection over IPv4; the addresses in the network's order of bytes."""

    inode: str
    own: bytes
    own_port: int
    other: bytes
    other_port: int


def cut(pids: Callable[[], list[int]], port: int, lasts_s: float) -> int:
    """End all connections of processes to a port, those too that they make meanwhile, for so long.

    Args:
        pids: The processes; asked whenever there is a connection that has not been seen.
        port: The port at the other end.
        lasts_s: How long.

    Returns:
        How many were ended.
    """
    ended, ours, theirs = 0, set[str](), set[str]()
    until = time.monotonic() + lasts_s
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        while time.monotonic() < until:
            found = list(_connections(port))
            if any(each.inode not in ours | theirs for each in found):
                ours = {inode for pid in pids() for inode in sockets_of(pid)}
                theirs = {each.inode for each in found} - ours
            ended += sum(_destroyed(kernel, each) for each in found if each.inode in ours)
            time.sleep(EVERY_S)
    return ended


def may_cut() -> bool:
    """True if this process may, and the kernel can: tried on a connection of our own."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        suppress(OSError),
    ):
        cut(lambda: [os.getpid()], server.getsockname()[1], EVERY_S)
        client.settimeout(EVERY_S)
        try:
            client.recv(1)
        except ConnectionError:
            return True
    return False


def _connections(port: int) -> Iterator[_Connection]:
    for row in tcp_rows():
        own, other = (end.partition(":") for end in row[1:3])
        if row[3] in OPEN and int(other[2], 16) == port and row[9] != "0":
            yield _Connection(row[9], _address(own[0]), int(own[2], 16), _address(other[0]), port)


def _address(text: str) -> bytes:
    """An IPv4 address, or the one that an IPv6 address stands for, from the kernel's text."""
    return bytes.fromhex(text[-8:])[::-1]


def _destroyed(kernel: socket.socket, connection: _Connection) -> bool:
    """Ask the kernel to end one; whether it was there.

    Raises:
        OSError: this process may not.
    """
    identity = struct.pack(
        "!HH4s12x4s12x", connection.own_port, connection.other_port, connection.own, connection.other
    ) + struct.pack("=III", 0, ANY_COOKIE, ANY_COOKIE)
    asked = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, ALL_STATES) + identity
    kernel.send(struct.pack("=IHHII", 16 + len(asked), SOCK_DESTROY, REQUEST_WITH_ANSWER, 0, 0) + asked)
    fault = -int.from_bytes(kernel.recv(4096)[16:20], sys.byteorder, signed=True)
    if fault not in (0, errno.ENOENT):
        raise OSError(fault, os.strerror(fault))
    return fault == 0
