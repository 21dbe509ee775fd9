"""Waits until a job delivers again what it had not delivered when it died."""

from __future__ import annotations

import time
from typing import Any

from lowtide_airflow.client import JobClient
from lowtide_airflow.deaths import Deaths
from lowtide_airflow.errors import TokenRefused
from lowtide_airflow.triggers.polling import AWAY, PollingTrigger

__all__ = ["RecoveredTrigger"]


class RecoveredTrigger(PollingTrigger):
    """Tells that a later life has delivered beyond what was told at a death: `incarnation`, `commit`, `delivered_ms`.

    What it was told of the death it tells again.

    Of a job that delivers at least once nobody stores a delivered time: its min time is taken, which its control API
    tells while it runs. So such a job is seen to be recovered only with its token, which may still be put right while
    it is waited for; of all others ZooKeeper knows enough.

    Args:
        dead: the life that died.
        told_ms: the largest delivered time that was told until then; None if none was.
        cause: of the death.
        job, connection, until, poll_s: as of `PollingTrigger`.
    """

    waits_for = "output beyond the point of its failure"
    passes = (*AWAY, TokenRefused)

    def __init__(
        self,
        *,
        job: str,
        connection: str,
        dead: int,
        told_ms: int | None,
        cause: str = "",
        until: float | None = None,
        poll_s: float = 1.0,
    ) -> None:
        super().__init__(job=job, connection=connection, until=until, poll_s=poll_s)
        self.dead = dead
        self.told_ms = told_ms
        self.cause = cause
        self._deaths = Deaths(dead)

    def arguments(self) -> dict[str, Any]:
        """See `PollingTrigger.arguments`."""
        return {**super().arguments(), "dead": self.dead, "told_ms": self.told_ms, "cause": self.cause}

    def look(self, client: JobClient) -> dict[str, Any] | None:
        """See `PollingTrigger.look`."""
        look = client.look()
        life = look.said
        if look.state != "running" or life is None or look.incarnation <= self.dead:
            return self._ended(look.state, self._deaths.look(look, time.monotonic()))
        point = self.told_ms if self.told_ms is not None else -1
        delivered = look.told_ms
        if delivered is None and life.delivery != "exactly_once":
            delivered = _min_time_of_at_least_once(client.status())
        if delivered is None or delivered <= point:
            return None
        found = {"incarnation": look.incarnation, "commit": life.commit, "delivered_ms": delivered}
        return {"dead": self.dead, "told_ms": self.told_ms, "cause": self.cause, **found}

    def _ended(self, state: str, death: Any) -> dict[str, Any] | None:
        if death is not None:
            return {"error": f"life {death.incarnation}, which was to recover it, has ended: {death.cause}"}
        return {"error": "it was stopped before it had caught up"} if state == "stopped" else None


def _min_time_of_at_least_once(status: dict[str, Any]) -> int | None:
    sinks = status.get("sinks") or []
    if not sinks or any(sink.get("delivery") != "at_least_once" for sink in sinks):
        return None
    found: int | None = status.get("min_time_ms")
    return found
