"""Tells the deaths of a job, for a watcher of an asset."""

from __future__ import annotations

import time
from typing import Any

from lowtide_airflow.deaths import FAILED_S, GONE_S, Deaths
from lowtide_airflow.triggers.event_trigger import EventTrigger
from lowtide_airflow.triggers.watching import Watch

__all__ = ["JobDiedTrigger"]


class JobDiedTrigger(EventTrigger):
    """Tells each death of a job: `job`, `incarnation`, `cause`, `told_ms`.

    A job is dead when nobody holds its lease and nobody stopped it, for long enough that its program would have begun
    it again by itself. While ZooKeeper is away nobody knows, and nobody could begin a life. A start by a task of
    Airflow that failed is that task's to see to, and not told.

    Args:
        gone_s: how long the lease is free of one that has said nothing of its end.
        failed_s: the same of one that has said why it ended.
        job, connection, poll_s: as of `EventTrigger`.
    """

    told_key = "lowtide_told_incarnation"

    def __init__(
        self, *, job: str, connection: str, poll_s: float = 1.0, gone_s: float = GONE_S, failed_s: float = FAILED_S
    ) -> None:
        super().__init__(job=job, connection=connection, poll_s=poll_s)
        self.gone_s = gone_s
        self.failed_s = failed_s
        self._deaths = Deaths()

    def arguments(self) -> dict[str, Any]:
        """See `EventTrigger.arguments`."""
        return {**super().arguments(), "gone_s": self.gone_s, "failed_s": self.failed_s}

    def begin(self, told: int | None) -> None:
        """See `EventTrigger.begin`."""
        self._deaths = Deaths(told or 0, gone_s=self.gone_s, failed_s=self.failed_s)

    async def look(self, watch: Watch) -> list[tuple[int, dict[str, Any] | None]]:
        """See `EventTrigger.look`."""
        look = await self.asked(watch, lambda client: client.look())
        if look is None:
            return []
        before = self._deaths.told
        death = self._deaths.look(look, time.monotonic())
        if death is not None:
            of_a_task = look.said is not None and look.said.is_a_tasks_failure
            return [(death.incarnation, None if of_a_task else death.as_object())]
        # What is taken back is kept at once: a life that dies while no triggerer runs would else count as told.
        return [(self._deaths.told, None)] if self._deaths.told < before else []
