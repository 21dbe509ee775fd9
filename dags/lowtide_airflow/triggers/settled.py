"""Waits until it is clear how it stands with a job: that it runs, was stopped, or has died."""

from __future__ import annotations

import time
from typing import Any

from lowtide_airflow.client import JobClient
from lowtide_airflow.deaths import Deaths
from lowtide_airflow.triggers.polling import PollingTrigger

__all__ = ["JobSettledTrigger"]


class JobSettledTrigger(PollingTrigger):
    """Tells how it stands with a job that was about to end or to begin again: `state`, and `death` if it died.

    Args:
        job, connection, until, poll_s: as of `PollingTrigger`.
    """

    waits_for = "the end or the next life"

    def __init__(self, *, job: str, connection: str, until: float | None = None, poll_s: float = 1.0) -> None:
        super().__init__(job=job, connection=connection, until=until, poll_s=poll_s)
        self._deaths = Deaths()

    def look(self, client: JobClient) -> dict[str, Any] | None:
        """See `PollingTrigger.look`."""
        look = client.look()
        if look.state in ("unknown", "running", "stopped"):
            return {"state": look.state, "death": None}
        death = self._deaths.look(look, time.monotonic())
        return None if death is None else {"state": look.state, "death": death.as_object()}
