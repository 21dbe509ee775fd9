"""Base of the triggers that wait for one event: polls a job, yields the event, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from lowtide_airflow.compat import AirflowNotFoundException
from lowtide_airflow.errors import NotRunning
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.services import Services
from lowtide_snapshots.errors import ControlUnreachable, LowtideError, ZooKeeperUnavailable
from lowtide_snapshots.stores.errors import StoreUnavailable

__all__ = ["OUTAGES", "AsyncJob", "JobTrigger", "LastServices", "Outage", "StoredArguments"]

T = TypeVar("T")

OUTAGES = (ZooKeeperUnavailable, StoreUnavailable, ControlUnreachable, NotRunning)
"""Errors that pass, so that polling continues."""
LOG_AGAIN_S = 300.0


class Outage:
    """An error that repeats; logged when it starts, when it changes, every `LOG_AGAIN_S`, and when it is over.

    Attributes:
        text: the error; empty while there is none.
    """

    def __init__(self) -> None:
        self.text = ""
        self._logged_s = 0.0

    def is_news(self, error: Exception, now_s: float) -> bool:
        """Record an error; returns whether to log it.

        Args:
            error: the error.
            now_s: a monotonic clock's time.
        """
        text = str(error) or type(error).__name__
        if text == self.text and now_s - self._logged_s < LOG_AGAIN_S:
            return False
        self.text, self._logged_s = text, now_s
        return True

    def is_over(self) -> bool:
        """Record a success; returns whether it ends an outage."""
        text, self.text = self.text, ""
        return bool(text)


class LastServices:
    """The services of an Airflow connection, as it was last.

    Args:
        lowtide_conn_id: the Airflow connection's id.
    """

    def __init__(self, lowtide_conn_id: str) -> None:
        self._hook = LowtideHook(lowtide_conn_id)
        self._services: Services | None = None

    @property
    def services(self) -> Services:
        """Those that were read last."""
        assert self._services is not None, "nothing was read yet"
        return self._services

    async def read(self) -> Services:
        """Read the Airflow connection again."""
        try:
            self._services = await self._hook.aget_conn()
        except AirflowNotFoundException:
            # Airflow raises this too while it cannot look the connection up: then the last answer stands.
            if self._services is None:
                raise
        return self._services


class AsyncJob:
    """A job's client for an event loop: ZooKeeper, the store and the job are called in a thread; an async context.

    After a call that failed, the client is closed and the Airflow connection is read again: it may have been corrected.

    Args:
        lowtide_conn_id: the Airflow connection's id.
        job: the job's name.
    """

    def __init__(self, lowtide_conn_id: str, job: str) -> None:
        self._last = LastServices(lowtide_conn_id)
        self._job = job
        self._client: JobClient | None = None
        # One thread: a client serves one at a time, and a ZooKeeper that is away blocks it for seconds.
        self._thread = ThreadPoolExecutor(1, f"lowtide {job}")

    async def call(self, function: Callable[[JobClient], T]) -> T:
        """Call a function with the client in the thread; connects first if necessary."""
        services = await self._last.read() if self._client is None else self._client.services

        def called() -> T:
            try:
                if self._client is None:
                    self._client = JobClient(services, self._job)
                    self._client.open()
                return function(self._client)
            except BaseException:
                self._close()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, called)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        # Closing is not waited for: the loop may be in a hurry to end.
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            # kazoo raises if its own thread does not end in time; there is nothing to do about it.
            with contextlib.suppress(Exception):
                client.close()


class StoredArguments:
    """A trigger whose constructor's arguments are attributes of the same names: Airflow stores all of them."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `BaseTrigger.serialize`."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}


class JobTrigger(StoredArguments, BaseTrigger):
    """Polls a job until there is an event.

    The event's payload is a dict with `job`, `error` (None, or a text with the way out) and the trigger's own keys.
    An outage of ZooKeeper, the store or the job's control API is waited out.

    Args:
        job: the job's name.
        lowtide_conn_id: the Airflow connection's id.
        end_time: when to give up, in seconds since 1970, so that a restart of the triggerer does not start the count
            again; None for never.
        poll_interval: seconds between two polls.
    """

    waits_for = "the event"
    """In words, for the error of a trigger that gives up."""
    passing: tuple[type[LowtideError], ...] = OUTAGES
    """Errors after which polling continues."""

    def __init__(
        self, *, job: str, lowtide_conn_id: str, end_time: float | None = None, poll_interval: float = 1.0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.lowtide_conn_id = lowtide_conn_id
        self.end_time = end_time
        self.poll_interval = poll_interval

    @abstractmethod
    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """Return the event's own keys, or None to poll again; called in a thread.

        Raises:
            LowtideError: becomes the event's error, unless it is `passing`.
        """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the event."""
        yield TriggerEvent({"job": self.job, "error": None} | await self._event())  # type: ignore[no-untyped-call]

    async def _event(self) -> dict[str, Any]:
        outage = Outage()
        async with AsyncJob(self.lowtide_conn_id, self.job) as job:
            while True:
                try:
                    found = await job.call(self.poll)
                except self.passing as error:
                    found = None
                    if outage.is_news(error, time.monotonic()):
                        self.log.warning('cannot poll job "%s", trying again: %s', self.job, outage.text)
                except LowtideError as error:
                    found = {"error": str(error)}
                else:
                    if outage.is_over():
                        self.log.info('job "%s" can be polled again', self.job)
                if found is not None:
                    return found
                if self._is_late():
                    late = f'timed out waiting for {self.waits_for} of job "{self.job}"'
                    return {"error": f"{late}: {outage.text}" if outage.text else late}
                await self.pause(job)

    async def pause(self, _job: AsyncJob) -> None:
        """Wait until it is worthwhile to poll again."""
        await asyncio.sleep(self.poll_interval)

    def _is_late(self) -> bool:
        return self.end_time is not None and time.time() > self.end_time
