"""Operators that start, preview and stop a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.log import mask_secret

from lowtide_airflow.arguments import is_true, seconds
from lowtide_airflow.errors import JobsFileRefused, RunsAlready
from lowtide_airflow.hidden import conceal, reveal, secrets_of
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.program import Launcher, Start, Supervised
from lowtide_airflow.job.spark_submit import SparkSubmit
from lowtide_airflow.job.status import JobStatus
from lowtide_airflow.job.submission import Submission, submit_once
from lowtide_airflow.jobs_file import SparkEntry
from lowtide_airflow.operators.base import LowtideOperator
from lowtide_airflow.triggers.job import JobEndedTrigger, JobRunningTrigger, JobSettledTrigger
from lowtide_airflow.ui.links import JobLink, SnapshotLink
from lowtide_snapshots.commits.moment import ms_of
from lowtide_snapshots.errors import NoSuchCommit

__all__ = ["PreviewFlowOperator", "RunFlowOperator", "StartOperator", "StopFlowOperator"]

ACCEPTED = "lowtide_accepted"
"""Under this name a task keeps, over all its tries, the key under which a cluster has accepted its job."""


class StartOperator(LowtideOperator):
    """Base of the operators that start a job.

    Args:
        job: the job's name.
        flow: flow.py, or flow.py:name, on the machine that starts it.
        conf: the conf file; by default the connection's.
        settings: keys of the conf to override; an empty text leaves a key alone.
        submit: "supervised" or "spark-submit".
        spark: the arguments of spark-submit, as in `[job.spark]` of the jobs file. Values of `settings` and `spark`
            whose names look like secrets are in no log, no error and no stored or rendered field.
        no_state: begin without state, even if there are commits.
        lowtide_conn_id, deferrable, poll_interval, timeout: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (
        *LowtideOperator.template_fields,
        "flow",
        "conf",
        "settings",
        "submit",
        "spark",
        "no_state",
    )

    def __init__(
        self,
        *,
        job: str,
        flow: str,
        conf: str = "",
        settings: Mapping[str, object] | None = None,
        submit: str = "supervised",
        spark: Mapping[str, object] | None = None,
        no_state: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, **kwargs)
        self.flow = flow
        self.conf = conf
        self.settings = conceal(settings)
        self.submit = submit
        self.spark = conceal(spark)
        self.no_state = no_state

    def start_point(self) -> Start:
        """Return what to start, and where it begins."""
        return Start(
            flow=str(self.flow),
            conf=str(self.conf or self.hook.programs().conf),
            settings=reveal(self.settings or {}),
            no_state=is_true(self.no_state),
        )

    def submit_job(self, context: Any, client: JobClient, *, dead: int = 0) -> Submission:
        """Submit the job once, over all tries of the task (errors: see `submit_once`).

        Args:
            context: the task's.
            client: the job, connected.
            dead: lives up to this one are known to be over.
        """
        kept = context["task_state_store"] if self.submit == "spark-submit" else None
        submission = submit_once(
            client,
            self.launcher(),
            self.start_point(),
            self.key(context),
            log=self.log.info,
            dead=dead,
            accepted=kept.get(ACCEPTED) if kept is not None else None,
        )
        if kept is not None and not submission.adopted:
            kept.set(ACCEPTED, submission.key)
        return submission

    def launcher(self) -> Launcher:
        """Return the launcher that starts the program.

        Raises:
            JobsFileRefused: `submit` is unknown, or `spark` is missing or wrong.
        """
        for secret in (*secrets_of(self.settings), *secrets_of(self.spark)):
            mask_secret(secret)
        programs, limit_s = self.hook.programs(), seconds(self.timeout)
        if self.submit == "supervised":
            return Supervised(programs.lowtide, programs.folder, limit_s)
        where = f'job "{self.job}"'
        if self.submit != "spark-submit" or not self.spark:
            raise JobsFileRefused(
                f"submit is {self.submit!r}, spark {self.spark!r}",
                where=where,
                way_out='give submit = "supervised"; or "spark-submit" with its arguments in [job.spark]',
            )
        try:
            spark = msgspec.convert(reveal(self.spark), SparkEntry)
        except msgspec.ValidationError as error:
            raise JobsFileRefused(str(error), where=f"{where}, spark", way_out="correct [job.spark]") from error
        return SparkSubmit(self.job, spark, programs.spark_submit, programs.folder, limit_s)


class RunFlowOperator(StartOperator):
    """Starts a job and waits until it runs. The job outlives the task and Airflow's worker.

    However often the task is tried, and whenever its process is killed, it begins one life: a try that finds the life
    of an earlier one adopts it. If that life has died, a later try begins another one; if it was stopped, none does. A
    job whose sources end may have come to its end meanwhile, which is as good as running.

    Returns `job`, `connection`, `incarnation`, `commit` (from which it began), `submission`, `adopted`.

    Args:
        commit: begin from this commit and no other, by its id or name.
        time: begin from the newest commit that ends at or before this, ISO.
        redeliver: deliver everything from there on again, as a new output generation.
        despite_readers: do so though other jobs of the graph read it and get it a second time.
        if_running: what to do with a job that runs already: "fail", or "leave" it and succeed.
        job, flow, conf, settings, submit, spark, no_state: see `StartOperator`.
        lowtide_conn_id, deferrable, poll_interval, timeout: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (
        *StartOperator.template_fields,
        "commit",
        "time",
        "redeliver",
        "despite_readers",
        "if_running",
    )
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: str,
        flow: str,
        commit: str | None = None,
        time: str | None = None,
        redeliver: bool | str = False,
        despite_readers: bool | str = False,
        if_running: str = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, flow=flow, **kwargs)
        self.commit = commit
        self.time = time
        self.redeliver = redeliver
        self.despite_readers = despite_readers
        self.if_running = if_running

    def start_point(self) -> Start:
        """See `StartOperator.start_point`."""
        return replace(
            super().start_point(),
            commit=str(self.commit) if self.commit else None,
            time=str(self.time) if self.time else None,
            redeliver=is_true(self.redeliver),
            despite_readers=is_true(self.despite_readers),
        )

    def execute(self, context: Any) -> Any:
        """Start the job, or find what an earlier try has started."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        with self.client() as client:
            try:
                submission = self.submit_job(context, client)
            except RunsAlready as error:
                if self.if_running != "leave":
                    raise AirflowFailException(str(error)) from error
                self.log.info("leaving it alone: %s", error)
                return self._done(context, client.status(), adopted=True)
            status = client.status()
        if status.finished and submission.incarnation is not None and status.incarnation >= submission.incarnation:
            return self._done(context, status, adopted=submission.adopted)
        if status.state == "stopped" and submission.incarnation == status.incarnation:
            raise AirflowFailException(
                f'life {status.incarnation} of job "{self.job}", which this task began, was stopped. '
                "To start the job once more, start a new DAG run"
            )
        begun = submission.incarnation
        if status.state == "running" and begun is not None and status.incarnation >= begun:
            return self._done(context, status, adopted=submission.adopted)
        self.log.info("submitted as %r; waiting for it to run", submission.key)
        return self.wait(JobRunningTrigger, "running", context, key=submission.key)

    def running(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when the job runs, or has ended before that."""
        self.checked(event)
        with self.client() as client:
            status = client.status()
        return self._done(context, status, adopted=False)

    def _done(self, context: Any, status: JobStatus, *, adopted: bool) -> dict[str, Any]:
        life = status.life
        done = {
            "job": self.job,
            "connection": self.lowtide_conn_id,
            "incarnation": status.incarnation,
            "commit": life.commit if life else None,
            "submission": life.submission if life else None,
            "adopted": adopted,
        }
        self.log.info('job "%s" %s: %s', self.job, "has come to its end" if status.finished else "runs", done)
        self.note(context, **done)
        return done


class PreviewFlowOperator(RunFlowOperator):
    """Previews a start: what the job would begin with, and how many records it would read and deliver again.

    Nothing is started. The task fails for good if the start would be refused. Returns the output of `lowtide recover
    --dry-run --json`; for a job on a cluster it checks the arguments, and returns only `commit` with its `id`.

    Args:
        job, flow, conf, settings, submit, spark, no_state: see `StartOperator`.
        commit, time, redeliver, despite_readers: see `RunFlowOperator`.
        lowtide_conn_id, timeout: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = RunFlowOperator.template_fields
    operator_extra_links = (SnapshotLink(),)

    def execute(self, context: Any) -> Any:
        """Preview the start."""
        start = self.start_point()
        with self.no_vain_retries():
            found = self.launcher().preview(start, self.log.info)
        if found is None:
            found = {"commit": self._commit(start)}
        if found.get("commit"):
            page = {"job": self.job, "connection": self.lowtide_conn_id}
            SnapshotLink.note(context, **page, snapshot=found["commit"]["id"])
        self.log.info("the job would begin with: %s", json.dumps(found, indent=2))
        return found

    def _commit(self, start: Start) -> dict[str, str] | None:
        """The commit that the job would begin from, after reading every part of it; None if without state."""
        if start.no_state:
            return None
        before_ms = None if start.time is None else ms_of(start.time)
        with self.client() as client, client.snapshots() as snapshots:
            try:
                choice = snapshots.choose(start.commit, before_ms)
            except NoSuchCommit:
                if start.chosen:
                    raise
                return None
        return {"id": choice.commit.id}


class StopFlowOperator(LowtideOperator):
    """Stops a job and waits until its lease is free: everything handed to its sinks is delivered first.

    A job that does not run is stopped already; one that is starting, or has just died and may be restarted by its
    program, is stopped once it runs. Returns `job`, `state` ("stopped", or its earlier end), `incarnation`.

    Args:
        job: the job's name.
        timeout: seconds, or a timedelta, that it may take; the job's own limit is [job].stop_limit_s, 30 s.
        lowtide_conn_id, deferrable, poll_interval: see `LowtideOperator`.
    """

    operator_extra_links = (JobLink(),)

    def __init__(self, *, job: str, timeout: float | str | timedelta = 120.0, **kwargs: Any) -> None:
        super().__init__(job=job, timeout=timeout, **kwargs)

    def execute(self, context: Any) -> Any:
        """Request the stop."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        return self._stop(context)

    def settled(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when a job that was starting or ending runs, is stopped, or has died."""
        return self._stop(context, died=self.checked(event)["death"] is not None)

    def ended(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when the lease is free."""
        end = self.checked(event)
        self.log.info('job "%s" has ended: %s', self.job, end)
        return {"job": self.job, "state": end["state"], "incarnation": end["incarnation"]}

    def _stop(self, context: Any, *, died: bool = False) -> Any:
        with self.client() as client:
            status = client.status()
            if status.state == "running":
                client.control().stop()
        # The program of a job that has just died may be about to restart it.
        if not status.alive and (died or status.state in ("unknown", "stopped")):
            self.log.info('job "%s" is not running: %s', self.job, status.state)
            return {"job": self.job, "state": status.state, "incarnation": status.incarnation}
        if status.state == "running":
            return self.wait(JobEndedTrigger, "ended", context)
        return self.wait(JobSettledTrigger, "settled", context)
