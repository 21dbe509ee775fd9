"""Starts a job, once for each DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from lowtide_airflow.errors import RunsAlready
from lowtide_airflow.job_look import JobLook
from lowtide_airflow.operators.job_operator import is_true
from lowtide_airflow.operators.starting import StartingOperator
from lowtide_airflow.submit import Start
from lowtide_airflow.triggers.running import JobRunningTrigger
from lowtide_airflow.ui.links import JobLink

__all__ = ["RunFlow"]


class RunFlow(StartingOperator):
    """Starts a job and waits until it runs. The job outlives the task and Airflow's worker.

    However often the task is tried, and whenever its process is killed, one life of the job is begun: a try that finds
    the life of an earlier one takes it for its own. One that has died is followed by another try's; one that somebody
    stopped since is not.

    Returns `job`, `connection`, `incarnation`, `commit` (from which it began), `submission`, `adopted`.

    Args:
        commit: begin from this commit and no other, by its id or name.
        time: begin from the newest commit that ends at or before this, ISO.
        redeliver: deliver everything from there on again, as a new output generation.
        if_running: of a job that somebody else runs: "fail", or "leave" it and be done.
        job, flow, conf, settings, submit, spark, no_state, limit_s, connection, poll_s: as of `StartingOperator`.
    """

    template_fields: Sequence[str] = (*StartingOperator.template_fields, "commit", "time", "redeliver", "if_running")
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: Any,
        flow: Any,
        commit: Any = None,
        time: Any = None,
        redeliver: Any = False,
        if_running: Any = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, flow=flow, **kwargs)
        self.commit = commit
        self.time = time
        self.redeliver = redeliver
        self.if_running = if_running

    def beginning(self) -> Start:
        """See `StartingOperator.beginning`."""
        return replace(
            super().beginning(),
            commit=str(self.commit) if self.commit else None,
            time=str(self.time) if self.time else None,
            redeliver=is_true(self.redeliver),
        )

    def execute(self, context: Any) -> Any:
        """Start it, or find what an earlier try has started."""
        JobLink.note(context, job=self.job, connection=self.connection)
        with self.client() as client:
            try:
                begun = self.begin(context, client)
            except RunsAlready as error:
                if self.if_running != "leave":
                    raise AirflowFailException(str(error)) from error
                self.log.info("it is left as it is: %s", error)
                return self._done(context, client.look(), adopted=True)
            look = client.look()
        if look.state == "stopped" and begun.incarnation == look.incarnation:
            raise AirflowFailException(
                f'life {look.incarnation} of job "{self.job}", which this task began, was stopped since. '
                "To start the job once more, begin a new DAG run"
            )
        if look.state == "running" and begun.incarnation is not None and look.incarnation >= begun.incarnation:
            return self._done(context, look, adopted=begun.adopted)
        self.log.info("submitted as %r; it is waited for", begun.key)
        return self.defer(trigger=JobRunningTrigger(key=begun.key, **self.waits(self.limit_s)), method_name="running")

    def running(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when it runs, or has ended before."""
        self.told(event)
        with self.client() as client:
            look = client.look()
        return self._done(context, look, adopted=False)

    def _done(self, context: Any, look: JobLook, *, adopted: bool) -> dict[str, Any]:
        life = look.life
        done = {
            "job": self.job,
            "connection": self.connection,
            "incarnation": look.incarnation,
            "commit": life.commit if life else None,
            "submission": life.submission if life else None,
            "adopted": adopted,
        }
        self.log.info('job "%s" runs: %s', self.job, done)
        self.note(context, **done)
        return done
