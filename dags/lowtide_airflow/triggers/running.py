"""Waits until a submission's life runs."""

from __future__ import annotations

import time
from typing import Any

from lowtide_airflow.client import JobClient
from lowtide_airflow.deaths import Deaths
from lowtide_airflow.triggers.polling import PollingTrigger

__all__ = ["JobRunningTrigger"]


class JobRunningTrigger(PollingTrigger):
    """Tells that the life which a submission began runs, or one that followed it: `incarnation`, `commit`, `control`.

    Args:
        key: of the submission.
        job, connection, until, poll_s: as of `PollingTrigger`.
    """

    waits_for = "the life that was submitted"

    def __init__(self, *, job: str, connection: str, key: str, until: float | None = None, poll_s: float = 1.0) -> None:
        super().__init__(job=job, connection=connection, until=until, poll_s=poll_s)
        self.key = key
        self._deaths: Deaths | None = None

    def arguments(self) -> dict[str, Any]:
        """See `PollingTrigger.arguments`."""
        return {**super().arguments(), "key": self.key}

    def look(self, client: JobClient) -> dict[str, Any] | None:
        """See `PollingTrigger.look`."""
        begun = client.submission(self.key)
        if begun is None:
            return None
        look = client.look()
        life = look.said
        if look.state == "running" and life is not None and look.incarnation >= begun:
            return {"incarnation": look.incarnation, "commit": life.commit, "control": life.control}
        if look.state == "stopped" and look.incarnation >= begun:
            return {"error": f'life {look.incarnation} of job "{self.job}" was stopped before it ran'}
        self._deaths = self._deaths or Deaths(begun - 1)
        death = self._deaths.look(look, time.monotonic())
        return None if death is None else {"error": f"life {death.incarnation} ended before it ran: {death.cause}"}
