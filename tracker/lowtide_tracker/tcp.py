"""TCP settings of the connections between Lowtide's processes."""

import select
import socket

from lowtide_tracker.tls import Connection

SILENT_FOR_S = 5
"""Silence of a connection before the kernel checks that the peer's machine is still there."""
PROBE_EVERY_S = 2
PROBES = 3
GONE_AFTER_S = SILENT_FOR_S + PROBES * PROBE_EVERY_S


def tune(connection: Connection) -> None:
    """No delay for small messages, and an end of the connection when the peer's machine has gone.

    A Unix socket has neither a delay nor another machine.
    """
    if _is_unix(connection):
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_FOR_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


def expect_acks(connection: Connection) -> None:
    """End the connection as well when what was sent stays unacknowledged for `GONE_AFTER_S`.

    Only for a peer that always reads: the kernel counts a reader that has no room as silent.
    """
    if _is_unix(connection):
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_AFTER_S * 1000)


def _is_unix(connection: Connection) -> bool:
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_UNIX


def ready(connection: Connection, event: int, wait_s: float) -> bool:
    """Wait for an event of `select.poll` at most so long; return whether it came."""
    poll = select.poll()
    poll.register(connection, event)
    return bool(poll.poll(wait_s * 1000))


def exactly(connection: Connection, size: int) -> bytes:
    """So many bytes of a peer that has not said yet who it is."""
    data = up_to(connection, size)
    if len(data) < size:
        raise ConnectionResetError(
            "it closed the connection before it identified itself: either it is ending, or this process does "
            "not know the job's secret"
        )
    return data


def up_to(connection: Connection, size: int) -> bytes:
    """So many bytes of a blocking socket; fewer if the peer closes the connection before."""
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            break
        data += more
    return bytes(data)
