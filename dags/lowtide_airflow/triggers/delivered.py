"""Waits until everything before a moment has been delivered (R18), once or for each hour."""

from __future__ import annotations

from typing import Any

from lowtide_airflow.client import JobClient
from lowtide_airflow.triggers.event_trigger import EventTrigger
from lowtide_airflow.triggers.polling import PollingTrigger
from lowtide_airflow.triggers.watching import Watch

__all__ = ["DeliveredTimePassedTrigger", "DeliveredTimeTrigger"]


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


class DeliveredTimePassedTrigger(EventTrigger):
    """Tells each slot of time that is complete, for a watcher of an asset: `from_ms`, `to_ms`, `delivered_ms`.

    In order; those that were completed while no triggerer ran are told when it is back. The first that is told is the
    one that is complete next.

    Args:
        every_s: the length of a slot; slots begin at 1970.
        job, connection, poll_s: as of `EventTrigger`.
    """

    told_key = "lowtide_told_ms"

    def __init__(self, *, job: str, connection: str, every_s: int = 3600, poll_s: float = 1.0) -> None:
        super().__init__(job=job, connection=connection, poll_s=poll_s)
        self.every_s = every_s
        self._told_ms: int | None = None

    def arguments(self) -> dict[str, Any]:
        """See `EventTrigger.arguments`."""
        return {**super().arguments(), "every_s": self.every_s}

    def begin(self, told: int | None) -> None:
        """See `EventTrigger.begin`."""
        self._told_ms = told

    async def look(self, watch: Watch) -> list[tuple[int, dict[str, Any] | None]]:
        """See `EventTrigger.look`."""
        delivered = await self.asked(watch, lambda client: client.delivered_ms())
        if delivered is None:
            return []
        slot_ms = self.every_s * 1000
        complete = delivered // slot_ms * slot_ms
        if self._told_ms is None:
            self._told_ms = complete
            return [(complete, None)]
        before, self._told_ms = self._told_ms, max(self._told_ms, complete)
        return [
            (end, {"job": self.job, "from_ms": end - slot_ms, "to_ms": end, "delivered_ms": delivered})
            for end in range(before + slot_ms, complete + 1, slot_ms)
        ]
