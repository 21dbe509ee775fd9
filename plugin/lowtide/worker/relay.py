"""The relay of an executor: the one connection that its hosts have to the tracker, in a process of its own.

The fork server forks it for a life whose hosts ask for it, keeps the socket that it listens at, and forks another one
if it dies: hosts connect to that one as to a tracker that was restarted.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket

from lowtide.assignment.messages import StartRelay
from lowtide.process.credentials import client_tls, plain, secured
from lowtide.process.descriptors import allow_descriptors
from lowtide.worker.speech import log_as
from lowtide_tracker.relay_server import RelayServer, relay

LOG = logging.getLogger(__name__)


def serve(listener: socket.socket, order: StartRelay, *, secret: bytes, incarnation: int, executor: str) -> int:
    """Relay until the life is over; return the process's exit status.

    Args:
        listener: The socket that hosts connect to.
        order: What a host has asked for.
        secret: The job's.
        incarnation: The life.
        executor: Whose hosts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name = f"relay of executor {executor}"
    log_as(name)
    allow_descriptors()
    tls = client_tls(secret) if secured(order.tracker) else None

    def make() -> RelayServer:
        return RelayServer(
            plain(order.tracker),
            secret=secret,
            incarnation=incarnation,
            flush_s=order.flush_ms / 1000,
            name=name,
            on_fault=lambda _: None,
            tracker_tls=tls,
        )

    LOG.info("%s ends: %s", name, asyncio.run(relay(make, listener)))
    return 0
