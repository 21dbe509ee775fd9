"""Stops a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide_airflow.operators.job_operator import JobOperator
from lowtide_airflow.triggers.ended import JobEndedTrigger
from lowtide_airflow.triggers.settled import JobSettledTrigger
from lowtide_airflow.ui.links import JobLink

__all__ = ["StopFlow"]


class StopFlow(JobOperator):
    """Asks a job to stop, and waits until nobody runs it any more: what its sinks were given is delivered first.

    A job that nobody runs is stopped already; one that only starts, or has just died and may be begun again by its
    program, is stopped once it runs. Returns `job`, `state` ("stopped", or what it had ended with before),
    `incarnation`.

    Args:
        job: the job's name.
        limit_s: how long it may take; the job's own limit is [job].stop_limit_s, 30 s.
        connection, poll_s: as of `JobOperator`.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "limit_s")
    operator_extra_links = (JobLink(),)

    def __init__(self, *, job: Any, limit_s: Any = 120.0, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.limit_s = limit_s

    def execute(self, context: Any) -> Any:
        """Ask it to stop."""
        JobLink.note(context, job=self.job, connection=self.connection)
        return self._stop()

    def settled(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when it is clear how it stands with a job that was about to begin or to end."""
        return self._stop(died=self.told(event)["death"] is not None)

    def ended(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when nobody runs it."""
        said = self.told(event)
        self.log.info('job "%s" has ended: %s', self.job, said)
        return {"job": self.job, "state": said["state"], "incarnation": said["incarnation"]}

    def _stop(self, *, died: bool = False) -> Any:
        with self.client() as client:
            look = client.look()
            if look.state == "running":
                client.control().stop()
        # The program of one that has just died may be about to begin it again.
        if not look.alive and (died or look.state in ("unknown", "stopped")):
            self.log.info('nobody runs job "%s": %s', self.job, look.state)
            return {"job": self.job, "state": look.state, "incarnation": look.incarnation}
        if look.state == "running":
            return self.defer(trigger=JobEndedTrigger(**self.waits(self.limit_s)), method_name="ended")
        return self.defer(trigger=JobSettledTrigger(**self.waits(self.limit_s)), method_name="settled")
