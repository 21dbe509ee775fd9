"""Looks at a job from an event loop, which is never held: ZooKeeper, the store and the job are asked in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from airflow.sdk.exceptions import AirflowNotFoundException

from lowtide_airflow.client import JobClient
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.place import Place

__all__ = ["Watch"]

T = TypeVar("T")


class Watch:
    """One job and the thread that asks for it; an asynchronous context.

    After a look that failed, its client is closed and the connection is looked up anew, as it may have been corrected.

    Args:
        connection: the Airflow connection's id.
        job: the job's name.
    """

    def __init__(self, connection: str, job: str) -> None:
        self._connection = connection
        self._job = job
        self._place: Place | None = None
        self._client: JobClient | None = None
        # One thread: a client is for one at a time, and a ZooKeeper that is away holds it for seconds.
        self._thread = ThreadPoolExecutor(1, f"lowtide {job}")

    async def ask(self, look: Callable[[JobClient], T]) -> T:
        """Call something with the job in the thread; connects before, if there is no connection."""
        place = await self._looked_up() if self._client is None else self._client.place

        def asked() -> T:
            try:
                if self._client is None:
                    self._client = JobClient(place, self._job)
                    self._client.open()
                return look(self._client)
            except BaseException:
                self._end()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    async def _looked_up(self) -> Place:
        """Where the job is, as Airflow says; as it said before, while it says nothing."""
        try:
            self._place = await LowtideHook(self._connection).aget_conn()
        except AirflowNotFoundException:
            # It says so also while it cannot look.
            if self._place is None:
                raise
        return self._place

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        # Nobody waits for the end of a connection: the loop may be in a hurry to end.
        self._thread.submit(self._end)
        self._thread.shutdown(wait=False)

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            # kazoo raises if its own thread does not end in time, and nothing is to be done about it.
            with contextlib.suppress(Exception):
                client.close()
