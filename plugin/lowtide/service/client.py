"""How the driver program talks to its service."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any, Self

from lowtide.errors import LifeEnded
from lowtide.wire import CONNECT_TIMEOUT_S, ConnectionClosed, Kind, connect, receive, send


class ServiceClient:
    """One blocking connection to a job's service."""

    def __init__(self, address: str, secret: bytes, limit_s: float | None = None) -> None:
        """Connect; errors as `lowtide.wire.connect`. With `limit_s`, a service that is slower counts as gone."""
        self._connection: socket.socket = connect(address, secret, limit_s or CONNECT_TIMEOUT_S)
        self._connection.settimeout(limit_s)

    def begin(self, incarnation: int, deployment: bytes) -> None:
        """Begin a life with the pickled deployment, which every worker is given.

        Raises:
            LifeEnded: a life with this number or a later one was there.
        """
        send(self._connection, Kind.PLAN, incarnation.to_bytes(8, "little") + deployment)
        answer = self._answer()
        if "refused" in answer:
            raise LifeEnded(answer["refused"], way_out="start the job again")

    def finish(self, incarnation: int) -> None:
        """End a life on purpose, and wait until its workers have delivered what they held and gone."""
        send(self._connection, Kind.ASK, {"ask": "finish", "incarnation": incarnation})
        self._answer()

    def status(self) -> dict[str, Any]:
        """Return what the service knows of the job: incarnation, cause, totals, workers."""
        send(self._connection, Kind.ASK, {"ask": "status"})
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            _, payload = receive(self._connection)
        except (ConnectionClosed, OSError) as gone:
            raise LifeEnded("Lowtide's service is gone", way_out="start the job again") from gone
        answer: dict[str, Any] = json.loads(payload)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
