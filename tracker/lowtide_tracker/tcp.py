"""How the connections between clients and the tracker behave."""

import socket

SILENT_FOR_S = 5
"""How long a connection may be silent before the kernel asks whether the peer's machine is still there."""
PROBE_EVERY_S = 2
PROBES = 3
GONE_AFTER_S = SILENT_FOR_S + PROBES * PROBE_EVERY_S


def tune(connection: socket.socket) -> None:
    """No delay for small messages, and an end of the connection when the peer's machine has gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_FOR_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_AFTER_S * 1000)
