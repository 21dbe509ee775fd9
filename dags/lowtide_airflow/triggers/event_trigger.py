"""A trigger that watches a job for an asset, and never ends."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lowtide_airflow.client import JobClient
from lowtide_airflow.triggers.watching import Watch

__all__ = ["EventTrigger"]

T = TypeVar("T")


class EventTrigger(BaseEventTrigger):
    """Looks at a job for ever, and tells what is to be told of it.

    Airflow keeps which was told last, as a number under `told_key`, so that a triggerer that starts anew goes on there.

    Args:
        job: the job's name.
        connection: the Airflow connection's id.
        poll_s: how often it looks.
    """

    told_key = "lowtide_told"

    def __init__(self, *, job: str, connection: str, poll_s: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.connection = connection
        self.poll_s = poll_s
        self._trouble = ""

    def arguments(self) -> dict[str, Any]:
        """All arguments of the constructor."""
        return {"job": self.job, "connection": self.connection, "poll_s": self.poll_s}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `BaseTrigger.serialize`."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments()

    @abstractmethod
    async def look(self, watch: Watch) -> list[tuple[int, dict[str, Any]]]:
        """What is to be told now, in order, each with the number that is then kept; called every `poll_s`."""

    @abstractmethod
    def begin(self, told: int | None) -> None:
        """Go on behind what was told last; None if nothing was, or nobody knows."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell one after the other."""
        self.begin(await self._remembered())
        async with Watch(self.connection, self.job) as watch:
            while True:
                for number, said in await self.look(watch):
                    yield TriggerEvent(said)  # type: ignore[no-untyped-call]
                    await self._remember(number)
                await asyncio.sleep(self.poll_s)

    async def asked(self, watch: Watch, look: Callable[[JobClient], T]) -> T | None:
        """What a look finds; None where nobody knows, which is written down once."""
        try:
            found = await watch.ask(look)
        except Exception as error:  # noqa: BLE001 - Airflow begins no watcher again that has ended
            if str(error) != self._trouble:
                self._trouble = str(error)
                self.log.warning("it is asked again: %s", error)
            return None
        self._trouble = ""
        return found

    async def _remembered(self) -> int | None:
        try:
            found = None if self.asset_state_store is None else await self.asset_state_store.aget(self.told_key)
        except Exception as error:  # noqa: BLE001 - to be told twice harms nobody
            self.log.warning("which was told last is not known: %s", error)
            found = None
        return int(found) if isinstance(found, int | str) else None

    async def _remember(self, number: int) -> None:
        try:
            if self.asset_state_store is not None:
                await self.asset_state_store.aset(self.told_key, number)
        except Exception as error:  # noqa: BLE001 - to be told twice harms nobody
            self.log.warning("Airflow does not keep that %s was told: %s", number, error)
