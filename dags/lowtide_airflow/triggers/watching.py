"""Looks at a job from an event loop, which is never held: ZooKeeper, the store and the job are asked in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from lowtide_airflow.client import JobClient
from lowtide_airflow.hook import LowtideHook

__all__ = ["Watch"]

T = TypeVar("T")


class Watch:
    """One job and the thread that asks for it; an asynchronous context.

    Args:
        connection: the Airflow connection's id; it is looked up anew after each failure, as it may have been corrected.
        job: the job's name.
    """

    def __init__(self, connection: str, job: str) -> None:
        self._connection = connection
        self._job = job
        self._client: JobClient | None = None
        # One thread: a client is for one at a time, and a ZooKeeper that is away holds it for seconds.
        self._thread = ThreadPoolExecutor(1, f"lowtide {job}")

    async def ask(self, look: Callable[[JobClient], T]) -> T:
        """Call something with the job in the thread; connects before, if there is no connection."""
        place = None if self._client is not None else await LowtideHook(self._connection).aget_conn()

        def asked() -> T:
            if self._client is None:
                assert place is not None
                client = JobClient(place, self._job)
                try:
                    self._client = client.open()
                except BaseException:
                    client.close()
                    raise
            return look(self._client)

        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        # Nobody waits for the end of a connection: the loop may be in a hurry to end.
        self._thread.submit(self._end)
        self._thread.shutdown(wait=False)

    def _end(self) -> None:
        if self._client is not None:
            self._client.close()
