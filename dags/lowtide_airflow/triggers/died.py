"""Tells the deaths of a job, for a watcher of an asset."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lowtide_airflow.deaths import FAILED_S, GONE_S, Death, Deaths
from lowtide_airflow.triggers.watching import Watch
from lowtide_snapshots.errors import SnapshotsError

__all__ = ["JobDiedTrigger"]

TOLD = "lowtide_told_incarnation"


class JobDiedTrigger(BaseEventTrigger):
    """Tells each death of a job once: `job`, `incarnation`, `cause`, `told_ms`.

    A job is dead when nobody holds its lease and nobody stopped it, for long enough that its program would have begun
    it again by itself. Airflow keeps which death was told last, so that one
    that starts anew does not repeat it.

    Args:
        job: the job's name.
        connection: the Airflow connection's id.
        poll_s: how often it looks.
        gone_s: how long the lease is free of one that has said nothing of its end.
        failed_s: the same of one that has said why it ended.
    """

    def __init__(
        self, *, job: str, connection: str, poll_s: float = 1.0, gone_s: float = GONE_S, failed_s: float = FAILED_S
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.connection = connection
        self.poll_s = poll_s
        self.gone_s = gone_s
        self.failed_s = failed_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `BaseTrigger.serialize`."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "job": self.job,
            "connection": self.connection,
            "poll_s": self.poll_s,
            "gone_s": self.gone_s,
            "failed_s": self.failed_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell death after death."""
        deaths = Deaths(await self._remembered(), gone_s=self.gone_s, failed_s=self.failed_s)
        trouble = ""
        async with Watch(self.connection, self.job) as watch:
            while True:
                death: Death | None = None
                try:
                    death = deaths.look(await watch.ask(lambda client: client.look()), time.monotonic())
                    trouble = ""
                except SnapshotsError as error:
                    # While ZooKeeper is away nobody knows, and nobody could begin a life.
                    if str(error) != trouble:
                        trouble = str(error)
                        self.log.warning("it is asked again: %s", trouble)
                if death is not None:
                    yield TriggerEvent(death.as_object())  # type: ignore[no-untyped-call]
                    await self._remember(death.incarnation)
                await asyncio.sleep(self.poll_s)

    async def _remembered(self) -> int:
        if self.asset_state_store is None:
            return 0
        found = await self.asset_state_store.aget(TOLD)
        return int(found) if isinstance(found, int | str) else 0

    async def _remember(self, incarnation: int) -> None:
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(TOLD, incarnation)
