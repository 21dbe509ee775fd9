"""Whether a life is still the current one of its job: asked by workers that have just claimed their sinks (W10)."""

from __future__ import annotations

import json

from lowtide.errors import LifeEnded
from lowtide.process.wire import ConnectionClosed, Kind, connect, receive, send
from lowtide_tracker.handshake import HandshakeError

LIMIT_S = 300.0
"""How long the service may take: it asks ZooKeeper, which may be away; only the sink's own thread waits."""


def check_current(service: str, secret: bytes, incarnation: int, worker: str) -> None:
    """Ask the service, and through it ZooKeeper, whether a life goes on; blocks for a few ms.

    Args:
        service: Where it listens, `host:port`.
        secret: The job's.
        incarnation: The life.
        worker: Who asks, for the log.

    Raises:
        LifeEnded: another life has begun, or nobody can say.
    """
    try:
        connection = connect(service, secret)
        with connection:
            connection.settimeout(LIMIT_S)
            send(connection, Kind.ASK, {"ask": "current", "incarnation": incarnation, "worker": worker})
            _, payload = receive(connection)
    except (ConnectionClosed, HandshakeError, OSError) as error:
        raise LifeEnded(
            f"the service does not say whether incarnation {incarnation} is still the current one: {error}",
            where=service,
            way_out="see the log; start the job again",
        ) from error
    refused = json.loads(payload).get("refused")
    if refused:
        raise LifeEnded(refused, way_out="this life is over; the newer one goes on where it was")
