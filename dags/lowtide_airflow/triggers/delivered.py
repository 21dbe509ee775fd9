"""Waits until everything before a moment has been delivered (R18), once or for each hour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lowtide_airflow.client import JobClient
from lowtide_airflow.triggers.polling import PollingTrigger
from lowtide_airflow.triggers.watching import Watch
from lowtide_snapshots.errors import SnapshotsError

__all__ = ["DeliveredTimePassedTrigger", "DeliveredTimeTrigger"]

TOLD = "lowtide_told_ms"


class DeliveredTimeTrigger(PollingTrigger):
    """Tells that everything before a moment is durable in the sinks: `delivered_ms`. A job that is dead is waited for.

    Args:
        at_ms: the moment, ms since 1970.
        job, connection, until, poll_s: as of `PollingTrigger`.
    """

    waits_for = "the delivered time"

    def __init__(
        self, *, job: str, connection: str, at_ms: int, until: float | None = None, poll_s: float = 1.0
    ) -> None:
        super().__init__(job=job, connection=connection, until=until, poll_s=poll_s)
        self.at_ms = at_ms

    def arguments(self) -> dict[str, Any]:
        """See `PollingTrigger.arguments`."""
        return {**super().arguments(), "at_ms": self.at_ms}

    def look(self, client: JobClient) -> dict[str, Any] | None:
        """See `PollingTrigger.look`."""
        delivered = client.delivered_ms()
        return None if delivered is None or delivered < self.at_ms else {"delivered_ms": delivered}


class DeliveredTimePassedTrigger(BaseEventTrigger):
    """Tells each slot of time that is complete, for a watcher of an asset: `from_ms`, `to_ms`, `delivered_ms`.

    Each slot once and in order; those that were completed while no triggerer ran are told when it is back, if Airflow
    has kept which one was told last. The first that is told is the one that is complete next.

    Args:
        job: the job's name.
        connection: the Airflow connection's id.
        every_s: the length of a slot; slots begin at 1970.
        poll_s: how often it looks.
    """

    def __init__(self, *, job: str, connection: str, every_s: int = 3600, poll_s: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.connection = connection
        self.every_s = every_s
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `BaseTrigger.serialize`."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "job": self.job,
            "connection": self.connection,
            "every_s": self.every_s,
            "poll_s": self.poll_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell slot after slot."""
        slot_ms = self.every_s * 1000
        told_ms = await self._remembered()
        trouble = ""
        async with Watch(self.connection, self.job) as watch:
            while True:
                delivered: int | None = None
                try:
                    delivered = await watch.ask(lambda client: client.delivered_ms())
                    trouble = ""
                except SnapshotsError as error:
                    if str(error) != trouble:
                        trouble = str(error)
                        self.log.warning("it is asked again: %s", trouble)
                if delivered is not None:
                    complete = delivered // slot_ms * slot_ms
                    told_ms = complete if told_ms is None else told_ms
                    while told_ms < complete:
                        told_ms += slot_ms
                        said = {"from_ms": told_ms - slot_ms, "to_ms": told_ms, "delivered_ms": delivered}
                        yield TriggerEvent({"job": self.job, **said})  # type: ignore[no-untyped-call]
                        await self._remember(told_ms)
                await asyncio.sleep(self.poll_s)

    async def _remembered(self) -> int | None:
        if self.asset_state_store is None:
            return None
        found = await self.asset_state_store.aget(TOLD)
        return int(found) if isinstance(found, int | str) else None

    async def _remember(self, told_ms: int) -> None:
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(TOLD, told_ms)
