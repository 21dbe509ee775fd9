"""Waits until nobody runs a job any more."""

from __future__ import annotations

from typing import Any

from lowtide_airflow.client import JobClient
from lowtide_airflow.triggers.polling import PollingTrigger

__all__ = ["JobEndedTrigger"]


class JobEndedTrigger(PollingTrigger):
    """Tells that nobody holds the job's lease: `state` ("stopped", "failed", "gone"), `incarnation`, `cause`.

    Args:
        job, connection, until, poll_s: as of `PollingTrigger`.
    """

    waits_for = "the end"

    def look(self, client: JobClient) -> dict[str, Any] | None:
        """See `PollingTrigger.look`."""
        look = client.look()
        if look.alive:
            return None
        life = look.said
        return {"state": look.state, "incarnation": look.incarnation, "cause": life.cause if life else ""}
