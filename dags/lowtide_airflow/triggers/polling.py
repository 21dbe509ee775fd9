"""A trigger that looks at a job until there is something to tell, tells it once, and ends."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from lowtide_airflow.client import JobClient
from lowtide_airflow.errors import ControlUnreachable, NotRunning
from lowtide_airflow.triggers.trouble import Trouble
from lowtide_airflow.triggers.watching import Watch
from lowtide_snapshots.errors import SnapshotsError, ZooKeeperUnavailable
from lowtide_snapshots.stores.errors import StoreUnavailable

__all__ = ["AWAY", "PollingTrigger"]

AWAY = (ZooKeeperUnavailable, StoreUnavailable, ControlUnreachable, NotRunning)
"""What passes: it is asked again."""


class PollingTrigger(BaseTrigger):
    """Looks at a job until there is something to tell.

    The event's payload is a dict with `job`, `error` (None, or a text that says what to do) and what the trigger tells.
    An outage of ZooKeeper, the store or the job's control API is waited for.

    Args:
        job: the job's name.
        connection: the Airflow connection's id.
        until: when it gives up, in seconds since 1970, so that a triggerer that restarts does not begin anew; None for
            never.
        poll_s: how often it looks.
    """

    waits_for = "what it waits for"
    """In words, for the error of one that gives up."""
    passes: tuple[type[SnapshotsError], ...] = AWAY
    """After what it is asked again."""

    def __init__(self, *, job: str, connection: str, until: float | None = None, poll_s: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.connection = connection
        self.until = until
        self.poll_s = poll_s

    @abstractmethod
    def look(self, client: JobClient) -> dict[str, Any] | None:
        """What there is to tell now; None to look again. Called in a thread.

        Raises:
            SnapshotsError: told as the event's error, unless it passes (`passes`).
        """

    def arguments(self) -> dict[str, Any]:
        """All arguments of the constructor."""
        return {"job": self.job, "connection": self.connection, "until": self.until, "poll_s": self.poll_s}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `BaseTrigger.serialize`."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell once."""
        yield TriggerEvent({"job": self.job, "error": None} | await self._told())  # type: ignore[no-untyped-call]

    async def _told(self) -> dict[str, Any]:
        trouble = Trouble()
        async with Watch(self.connection, self.job) as watch:
            while True:
                try:
                    said = await watch.ask(self.look)
                except self.passes as error:
                    said = None
                    if trouble.goes_on(error, time.monotonic()):
                        self.log.warning('job "%s" is asked again: %s', self.job, trouble.text)
                except SnapshotsError as error:
                    said = {"error": str(error)}
                else:
                    if trouble.is_over():
                        self.log.info('job "%s" is seen again', self.job)
                if said is not None:
                    return said
                if self.until is not None and time.time() > self.until:
                    return {"error": self._late(trouble.text)}
                await asyncio.sleep(self.poll_s)

    def _late(self, trouble: str) -> str:
        told = f'{self.waits_for} of job "{self.job}" has not come in time'
        return f"{told}: {trouble}" if trouble else told
