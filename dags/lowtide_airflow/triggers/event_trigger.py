"""A trigger that watches a job for an asset, and never ends."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lowtide_airflow.client import JobClient
from lowtide_airflow.triggers.trouble import Trouble
from lowtide_airflow.triggers.watching import Watch

__all__ = ["REMEMBER_AFTER_S", "EventTrigger"]

T = TypeVar("T")

REMEMBER_AFTER_S = 60.0
"""How long after it was told Airflow is given the number to keep. The triggerer sends an event on within a second, and
until then it is nowhere else; and of a DAG that is paused the watcher goes on until Airflow reads the DAG file again,
by default after 30 s, while nobody hears what it tells."""
REMEMBERED_WITHIN_S = 60.0
"""How long a watcher asks what was told last before it begins as if nothing was."""


class EventTrigger(BaseEventTrigger):
    """Looks at a job for ever, and tells what is to be told of it.

    Everything is told at least once. Airflow keeps which was told last, as a number under `told_key`, so that a
    triggerer that starts anew goes on there; what was told within `REMEMBER_AFTER_S` before that, it tells once more.

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
        self._pending: deque[tuple[float, int]] = deque()
        """Numbers that Airflow is to keep, each behind the time from which on; ascending in time."""
        self._looking = Trouble()
        self._keeping = Trouble()

    def arguments(self) -> dict[str, Any]:
        """All arguments of the constructor."""
        return {"job": self.job, "connection": self.connection, "poll_s": self.poll_s}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `BaseTrigger.serialize`."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments()

    @abstractmethod
    async def look(self, watch: Watch) -> list[tuple[int, dict[str, Any] | None]]:
        """What is to be told now, in order, each with the number that is then kept; called every `poll_s`.

        With None nothing is told: the number is kept at once, in place of all that were told before it.
        """

    @abstractmethod
    def begin(self, told: int | None) -> None:
        """Go on behind what was told last; None if nothing was, or nobody knows."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell one after the other."""
        self.begin(await self._remembered())
        async with Watch(self.connection, self.job) as watch:
            while True:
                for number, said in await self.look(watch):
                    if said is None:
                        self._pending = deque([(time.monotonic(), number)])
                    else:
                        yield TriggerEvent(said)  # type: ignore[no-untyped-call]
                        self._pending.append((time.monotonic() + REMEMBER_AFTER_S, number))
                await self._remember_due(time.monotonic())
                await asyncio.sleep(self.poll_s)

    async def asked(self, watch: Watch, look: Callable[[JobClient], T]) -> T | None:
        """What a look finds; None where nobody knows, which is written down now and then."""
        try:
            found = await watch.ask(look)
        except Exception as error:  # noqa: BLE001 - Airflow begins no watcher again that has ended
            if self._looking.goes_on(error, time.monotonic()):
                self.log.warning('job "%s" is asked again: %s', self.job, self._looking.text)
            return None
        if self._looking.is_over():
            self.log.info('job "%s" is seen again', self.job)
        return found

    async def _remember_due(self, now_s: float) -> None:
        """Have Airflow keep the newest number that is old enough; where it does not, a later look has it try again."""
        pending = self._pending
        while len(pending) > 1 and pending[1][0] <= now_s:
            pending.popleft()
        if pending and pending[0][0] <= now_s and await self._remember(pending[0][1]):
            pending.popleft()

    async def _remembered(self) -> int | None:
        """What was told last; None if nothing was, or Airflow does not say."""
        store, deadline = self.asset_state_store, time.monotonic() + REMEMBERED_WITHIN_S
        while store is not None:
            try:
                found = await store.aget(self.told_key)
                return None if found is None else int(str(found))
            except Exception as error:  # noqa: BLE001 - Airflow begins no watcher again that has ended
                # A ValueError is for good: it is no number, or several assets have this trigger, and share no store.
                if isinstance(error, ValueError) or time.monotonic() > deadline:
                    self.log.warning("which was told last is not known: %s", error)
                    return None
                if self._keeping.goes_on(error, time.monotonic()):
                    self.log.warning("it is asked again which was told last: %s", self._keeping.text)
            await asyncio.sleep(self.poll_s)
        return None

    async def _remember(self, number: int) -> bool:
        """Whether Airflow keeps now that a number was told."""
        try:
            if self.asset_state_store is not None:
                await self.asset_state_store.aset(self.told_key, number)
        except Exception as error:  # noqa: BLE001 - to be told twice harms nobody
            if self._keeping.goes_on(error, time.monotonic()):
                self.log.warning("Airflow does not keep that %s was told: %s", number, self._keeping.text)
            return False
        if self._keeping.is_over():
            self.log.info("Airflow keeps again which was told last")
        return True
