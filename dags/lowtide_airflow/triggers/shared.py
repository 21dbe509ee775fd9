"""One look at ZooKeeper for all watchers of an Airflow connection: a session, a thread, and each job's status once.

Airflow keeps a watcher for every asset in one triggerer: twenty jobs with three each would be sixty sessions.
(Airflow 3.3 has streams that triggers share, too. They do not know which jobs are watched, and an error ends all
watchers of one.)
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.services import Services
from lowtide_airflow.job.status import JobStatus
from lowtide_airflow.triggers.base import LastServices
from lowtide_snapshots.errors import LowtideError, ZooKeeperRefused, ZooKeeperUnavailable
from lowtide_snapshots.zookeeper.connection import Connection

__all__ = ["SharedJob"]

T = TypeVar("T")

KEPT_S = 0.5
"""Time for which a job's status serves every watcher of the job; each polls once in a second."""


class SharedJob:
    """A job's client for a watcher, over the session of all watchers of the Airflow connection; an async context.

    After a call that failed the Airflow connection is read again: it may have been corrected.

    Args:
        lowtide_conn_id: the Airflow connection's id.
        job: the job's name.
    """

    def __init__(self, lowtide_conn_id: str, job: str) -> None:
        self._lowtide_conn_id = lowtide_conn_id
        self._job = job
        self._root: _Root | None = None

    async def call(self, function: Callable[[JobClient], T]) -> T:
        """Call a function with the client in the thread; connects first if necessary."""
        assert self._root is not None, "it is a context"
        return await self._root.call(self._job, function)

    async def __aenter__(self) -> Self:
        if self._key() not in _ROOTS:
            _ROOTS[self._key()] = _Root(self._lowtide_conn_id)
        self._root = _ROOTS[self._key()]
        self._root.watchers += 1
        return self

    async def __aexit__(self, *_raised: object) -> None:
        root = _ROOTS[self._key()]
        root.watchers -= 1
        if not root.watchers:
            _ROOTS.pop(self._key()).close()

    def _key(self) -> tuple[asyncio.AbstractEventLoop, str]:
        return asyncio.get_running_loop(), self._lowtide_conn_id


class SeenJob(JobClient):
    """A job's client that reads the status once for all who ask within `KEPT_S`."""

    def __init__(self, services: Services, job: str, connection: Connection) -> None:
        super().__init__(services, job, connection)
        self._seen: JobStatus | None = None
        self._seen_s = 0.0

    def status(self) -> JobStatus:
        """See `JobClient.status`."""
        if self._seen is None or time.monotonic() - self._seen_s >= KEPT_S:
            self._seen, self._seen_s = super().status(), time.monotonic()
        return self._seen


class _Root:
    """The session and the thread of one Airflow connection, and the clients of the jobs that are watched."""

    def __init__(self, lowtide_conn_id: str) -> None:
        self.watchers = 0
        self._last = LastServices(lowtide_conn_id)
        self._failed = True
        self._services: Services | None = None
        self._connection: Connection | None = None
        self._clients: dict[str, JobClient] = {}
        self._thread = ThreadPoolExecutor(1, f"lowtide {lowtide_conn_id}")

    async def call(self, job: str, function: Callable[[JobClient], T]) -> T:
        services = await self._last.read() if self._failed else self._last.services
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._thread, self._called, services, job, function)
        except BaseException:
            self._failed = True
            raise
        self._failed = False
        return found

    def _called(self, services: Services, job: str, function: Callable[[JobClient], T]) -> T:
        try:
            if services != self._services:
                self._disconnect()
                self._services = services
            if self._connection is None:
                self._connection = services.connection()
                self._connection.open()
            if job not in self._clients:
                self._clients[job] = SeenJob(services, job, self._connection)
            return function(self._clients[job])
        except BaseException as error:
            # What is wrong with one job's nodes costs the other jobs no session.
            if not isinstance(error, LowtideError) or isinstance(error, ZooKeeperUnavailable | ZooKeeperRefused):
                self._disconnect()
            raise

    def close(self) -> None:
        """End the session, without waiting for that: the loop may be in a hurry to end."""
        self._thread.submit(self._disconnect)
        self._thread.shutdown(wait=False)

    def _disconnect(self) -> None:
        connection, self._connection, self._clients = self._connection, None, {}
        if connection is not None:
            # kazoo raises if its own thread does not end in time; there is nothing to do about it.
            with contextlib.suppress(Exception):
                connection.close()


_ROOTS: dict[tuple[asyncio.AbstractEventLoop, str], _Root] = {}
"""By event loop, as a triggerer has one and a test some, and by Airflow connection."""
