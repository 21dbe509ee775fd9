"""The service as the driver and its workers ask it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from msgspec import to_builtins

from lowtide.assignment.messages import (
    Answer,
    Begun,
    Current,
    Done,
    Finish,
    Finished,
    JobState,
    Leads,
    Message,
    Refused,
    Status,
    StillRuns,
    Stopping,
    encode,
    read_answer,
)
from lowtide.assignment.setting import LifeSetting, pack
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.errors import AlreadyRunning, LifeEnded
from lowtide.process.wire import CONNECT_TIMEOUT_S, ConnectionClosed, Kind, connect, receive, send
from lowtide_snapshots.cause import Cause
from lowtide_tracker.handshake import HandshakeError
from lowtide_tracker.tls import Connection

T = TypeVar("T", bound=Message)

LIMIT_S = 20.0
"""Limit on an answer of the service; longer than its waits for workers when a life begins or ends."""


class ServiceClient:
    """One blocking connection to a job's service; a service that does not answer counts as gone.

    Args:
        address: Where the service listens.
        secret: The job's.
        limit_s: How long it may take to answer.

    Raises:
        LifeEnded: by every method, and when it is made: the service is gone.
    """

    def __init__(self, address: str, secret: bytes, limit_s: float = LIMIT_S) -> None:
        self._address = address
        try:
            self._connection: Connection = connect(address, secret, min(limit_s, CONNECT_TIMEOUT_S))
        except (ConnectionClosed, HandshakeError, OSError) as error:
            self._gone(error)
        self._connection.settimeout(limit_s)

    def leads(self, job: str, lease: str, zookeeper: ZooKeeperAccess) -> None:
        """Have a lease freed when this process has ended, however that happens; to be called before it is taken.

        Args:
            job: The job's name.
            lease: The `lease_token` of the store that will take it.
            zookeeper: The way to it.
        """
        self._ask(Leads(job=job, pid=os.getpid(), lease=lease, zookeeper=to_builtins(zookeeper)), Done)

    def begin(self, setting: LifeSetting, deployment: bytes) -> tuple[str, str]:
        """Begin a life with its setting, and the pickled deployment for every worker.

        Returns:
            The address of the life's control API, `host:port`, and its certificate, in PEM.

        Raises:
            AlreadyRunning: another life runs in this session.
            LifeEnded: a life with this number or a later one existed, or the service is gone.
        """
        answer = self._send(Kind.PLAN, pack(setting, deployment))
        if isinstance(answer, StillRuns):
            raise AlreadyRunning(
                f"a job already runs in this Spark session, as incarnation {answer.incarnation}",
                way_out="stop that job first, start this one in a session of its own, or put both into one flow",
            )
        begun = _expect(Begun, answer)
        return begun.control, begun.certificate

    def stopping(self, incarnation: int, cause: Cause | None) -> None:
        """Announce that the life's query is about to be stopped: tasks that break off with it have not failed.

        Args:
            incarnation: The life's number.
            cause: Why it ends, where its program knows; None for a stop on purpose.
        """
        self._ask(Stopping(incarnation, cause), Done)

    def finish(self, incarnation: int) -> list[str]:
        """End a life on purpose, and wait until its workers have delivered what they held and gone.

        Returns:
            The names of workers that took too long and were killed.
        """
        return self._ask(Finish(incarnation), Finished).killed

    def status(self) -> JobState:
        """Return the job's state, as the service knows it."""
        return self._ask(Status(), JobState)

    def _ask(self, question: Message, kind: type[T]) -> T:
        return _expect(kind, self._send(Kind.ASK, encode(question)))

    def _send(self, kind: Kind, payload: bytes) -> Answer:
        try:
            send(self._connection, kind, payload)
            _, answer = receive(self._connection)
        except (ConnectionClosed, OSError) as error:
            self.close()  # A late answer would be taken for that of the next question.
            self._gone(error)
        except BaseException:
            self.close()  # In the same way, where a signal breaks the wait off.
            raise
        return read_answer(answer)

    def _gone(self, error: Exception) -> NoReturn:
        raise LifeEnded(
            f"Lowtide's service is gone: {error or type(error).__name__}",
            where=self._address,
            way_out="see the log; start the job again",
        ) from error

    @property
    def closed(self) -> bool:
        """True once it is closed, as it is after an answer that did not come."""
        return self._connection.fileno() < 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


LIMIT_S = 300.0
"""Limit on the service's answer: it asks ZooKeeper, which may be away; only the sink's own thread waits."""


def check_current(service: str, secret: bytes, incarnation: int, worker: str) -> None:
    """Ask the service, and through it ZooKeeper, whether a life is current; blocks for a few ms.

    Args:
        service: Its address.
        secret: The job's.
        incarnation: The life.
        worker: The worker that asks, for the log.

    Raises:
        LifeEnded: another life has begun, or the service does not answer.
    """
    try:
        connection = connect(service, secret)
        with connection:
            connection.settimeout(LIMIT_S)
            send(connection, Kind.ASK, encode(Current(incarnation, worker)))
            _, payload = receive(connection)
    except (ConnectionClosed, HandshakeError, OSError) as error:
        raise LifeEnded(
            f"cannot ask the service whether incarnation {incarnation} is still the current one: {error}",
            where=service,
            way_out="see the log; start the job again",
        ) from error
    _expect(Done, read_answer(payload), way_out="nothing: this life is over, and the newer one continues from it")


def _expect(kind: type[T], answer: Answer, way_out: str = "start the job again") -> T:
    """Return an answer of this kind; any other, a refusal above all, is an error."""
    if isinstance(answer, kind):
        return answer
    cause = (
        answer.cause if isinstance(answer, Refused) else f"unexpected answer of the service: {type(answer).__name__}"
    )
    raise LifeEnded(cause, way_out=way_out)
