"""Operators that start, preview and stop a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from airflow.sdk.log import mask_secret

from lowtide_airflow.arguments import is_true, seconds
from lowtide_airflow.compat import AirflowFailException, kept_by_task
from lowtide_airflow.errors import JobsFileRefused, RunsAlready, SubmitFailed
from lowtide_airflow.hidden import conceal, reveal, secrets_of
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.log import tell_log
from lowtide_airflow.job.program import Launcher, Start, Supervised
from lowtide_airflow.job.spark_submit import SparkSubmit
from lowtide_airflow.job.status import JobStatus
from lowtide_airflow.job.submission import Submission, stop_begun, submit_once
from lowtide_airflow.jobs_file import SparkEntry
from lowtide_airflow.operators.base import LowtideOperator
from lowtide_airflow.triggers.job import JobEndedTrigger, JobFinishedTrigger, JobRunningTrigger, JobSettledTrigger
from lowtide_airflow.ui.links import JobLink, SnapshotLink
from lowtide_snapshots.commits.moment import ms_of
from lowtide_snapshots.errors import LowtideError, NoSuchCommit

__all__ = ["PreviewFlowOperator", "RunFlowOperator", "StartOperator", "StopFlowOperator"]

ACCEPTED = "lowtide_accepted"
"""Under this name a task keeps, over all its tries, the key under which a cluster has accepted its job."""


class StartOperator(LowtideOperator):
    """Base of the operators that start a job.

    Args:
        job: the job's name.
        flow: flow.py, or flow.py:name, on the machine that starts it.
        conf_file: the path of the job's conf; by default the connection's.
        settings: keys of the conf to override; an empty text leaves a key alone. Values of `settings` and
            `spark_properties` whose names look like secrets are in no log, no error and no stored or rendered field.
        no_state: begin without state, even if there are commits.
        master: the cluster that spark-submit sends the program to: "yarn", "k8s://https://host:port" or
            "spark://host:port". Without one, it runs on the host of Airflow's worker, under Lowtide's supervisor.
        yarn_queue: YARN's queue.
        namespace: of Kubernetes.
        image: the container image with Lowtide and the flow, on Kubernetes.
        service_account: the one under which the driver creates its executors, on Kubernetes.
        archive: the packed environment, `path#name`, on YARN; its `bin/python` runs the driver and the executors.
        python: the interpreter, as a path on the cluster; on a standalone one that of the driver.
        jars: the paths that `lowtide submit-args` prints, as the cluster sees them.
        files: files to ship with the program: the conf.
        spark_properties: Spark properties, passed through unchanged.
        lowtide_conn_id, deferrable, poll_interval, timeout: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (
        *LowtideOperator.template_fields,
        "flow",
        "conf_file",
        "settings",
        "no_state",
        "master",
        "yarn_queue",
        "namespace",
        "image",
        "service_account",
        "archive",
        "python",
        "jars",
        "files",
        "spark_properties",
    )

    def __init__(
        self,
        *,
        job: str,
        flow: str,
        conf_file: str = "",
        settings: Mapping[str, object] | None = None,
        no_state: bool | str = False,
        master: str = "",
        yarn_queue: str = "",
        namespace: str = "default",
        image: str = "",
        service_account: str = "",
        archive: str = "",
        python: str = "",
        jars: Sequence[str] = (),
        files: Sequence[str] = (),
        spark_properties: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, **kwargs)
        self.flow = flow
        self.conf_file = conf_file
        self.settings = conceal(settings)
        self.no_state = no_state
        self.master = master
        self.yarn_queue = yarn_queue
        self.namespace = namespace
        self.image = image
        self.service_account = service_account
        self.archive = archive
        self.python = python
        self.jars = jars
        self.files = files
        self.spark_properties = conceal(spark_properties)

    def start_point(self) -> Start:
        """Return what to start, and where it begins."""
        return Start(
            flow=str(self.flow),
            conf=str(self.conf_file or self.hook.programs().conf),
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
        kept = kept_by_task(context) if self.master else None
        try:
            submission = submit_once(
                client,
                self.launcher(),
                self.start_point(),
                self.key(context),
                log=self.log.info,
                dead=dead,
                accepted=kept.get(ACCEPTED) if kept is not None else None,
            )
        except SubmitFailed:
            self._tell_log_of_start(client, self.key(context))
            raise
        if kept is not None and not submission.adopted:
            kept.set(ACCEPTED, submission.key)
        return submission

    def tell_log(self, client: JobClient | None = None) -> None:
        """See `LowtideOperator.tell_log`."""
        self._mask_secrets()
        super().tell_log(client)

    def launcher(self) -> Launcher:
        """Return the launcher that starts the program (errors: JobsFileRefused, if an argument has another type)."""
        self._mask_secrets()
        programs, limit_s = self.hook.programs(), seconds(self.timeout)
        if not self.master:
            return Supervised(programs.lowtide, programs.folder, limit_s)
        given = {
            "master": self.master,
            "queue": self.yarn_queue,
            "namespace": self.namespace,
            "image": self.image,
            "service_account": self.service_account,
            "archive": self.archive,
            "python": self.python,
            "jars": self.jars,
            "files": self.files,
            "properties": reveal(self.spark_properties or {}),
        }
        try:
            spark = msgspec.convert(given, SparkEntry)
        except msgspec.ValidationError as error:
            where = f'job "{self.job}", arguments of spark-submit'
            raise JobsFileRefused(str(error), where=where, way_out="correct the argument, or [job.spark]") from error
        return SparkSubmit(self.job, spark, programs.spark_submit, programs.folder, limit_s)

    def _tell_log_of_start(self, client: JobClient, key: str) -> None:
        """Log where the log of the life is that a submission began, if it began one, and its end."""
        with suppress(LowtideError):
            life = client.status().current
            if life is not None and (life.submission or "").startswith(key):
                self.tell_log(client)

    def _mask_secrets(self) -> None:
        for secret in (*secrets_of(self.settings), *secrets_of(self.spark_properties)):
            mask_secret(secret)


class RunFlowOperator(StartOperator):
    """Starts a job and waits until it runs. The job outlives the task and Airflow's worker.

    However often the task is tried, and whenever its process is killed, it begins one life: a try that finds the life
    of an earlier one adopts it. If that life has died, a later try begins another one; if it was stopped, none does. A
    job whose sources end may have come to its end meanwhile, which is as good as running.

    A task that is killed, marked or cleared in the UI for instance, leaves the job alone, and says so; with
    `stop_on_kill` it stops the life that it began, unless another task has begun one since. (A task that waits in the
    triggerer learns of it where Airflow tells triggers, as 3.3 does.)

    Returns `job`, `connection`, `incarnation`, `commit` (from which it began), `submission`, `adopted`.

    Args:
        commit: begin from this commit and no other, by its id or name.
        time: begin from the newest commit that ends at or before this, ISO.
        require_state: refuse to start a job that has no commit.
        redeliver: deliver everything from there on again, as a new output generation.
        despite_readers: do so though other jobs of the graph read it and get it a second time.
        if_running: what to do with a job that runs already: "fail", or "leave" it and succeed.
        wait_for_completion: wait until all of the job's sources have ended and everything is delivered. A job that is
            stopped before that fails the task; one that dies fails the try, and the next try starts it again.
        stop_on_kill: stop the job if the task is killed.
        job, flow, conf_file, settings, no_state, and all arguments of spark-submit: see `StartOperator`.
        lowtide_conn_id, deferrable, poll_interval, timeout: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (
        *StartOperator.template_fields,
        "commit",
        "time",
        "require_state",
        "redeliver",
        "despite_readers",
        "if_running",
        "wait_for_completion",
        "stop_on_kill",
    )
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: str,
        flow: str,
        commit: str | None = None,
        time: str | None = None,
        require_state: bool | str = False,
        redeliver: bool | str = False,
        despite_readers: bool | str = False,
        if_running: str = "fail",
        wait_for_completion: bool | str = False,
        stop_on_kill: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, flow=flow, **kwargs)
        self.commit = commit
        self.time = time
        self.require_state = require_state
        self.redeliver = redeliver
        self.despite_readers = despite_readers
        self.if_running = if_running
        self.wait_for_completion = wait_for_completion
        self.stop_on_kill = stop_on_kill
        self._key = ""

    def start_point(self) -> Start:
        """See `StartOperator.start_point`."""
        return replace(
            super().start_point(),
            commit=str(self.commit) if self.commit else None,
            time=str(self.time) if self.time else None,
            require_state=is_true(self.require_state),
            redeliver=is_true(self.redeliver),
            despite_readers=is_true(self.despite_readers),
        )

    def execute(self, context: Any) -> Any:
        """Start the job, or find what an earlier try has started."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        self._key = self.key(context)
        with self.client() as client:
            try:
                submission = self.submit_job(context, client)
            except RunsAlready as error:
                if self.if_running != "leave":
                    raise AirflowFailException(str(error)) from error
                self.log.info("leaving it alone: %s", error)
                return self._runs(context, client.status(), adopted=True)
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
            return self._runs(context, status, adopted=submission.adopted)
        self.log.info("submitted as %r; waiting for it to run", submission.key)
        return self.wait(JobRunningTrigger, "running", context, key=submission.key, stop_key=self._stop_key(context))

    def running(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when the job runs, or has ended before that."""
        return self._runs(context, self._status_after(event), adopted=False)

    def completed(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when everything is delivered, or the job has ended before that."""
        return self._done(context, self._status_after(event), adopted=False)

    def on_kill(self) -> None:
        """Stop the job if that is wanted, or say that it goes on."""
        if not is_true(self.stop_on_kill) or not self._key:
            super().on_kill()
            return
        try:
            with self.hook.job(self.job) as client:
                self.log.warning("the task was killed: %s", stop_begun(client, self._key))
        except LowtideError as error:
            self.log.warning('the task was killed, and job "%s" was not stopped: %s', self.job, error)

    def _status_after(self, event: Mapping[str, Any]) -> JobStatus:
        """The job's status after a trigger's event (errors: LowtideError, if the event is of one)."""
        if event.get("error"):
            self.tell_log()
        self.checked(event)
        with self.client() as client:
            return client.status()

    def _runs(self, context: Any, status: JobStatus, *, adopted: bool) -> Any:
        tell_log(status, self.log.info, self.log.error)
        if not is_true(self.wait_for_completion) or status.finished:
            return self._done(context, status, adopted=adopted)
        self.log.info('life %s of job "%s" runs; waiting for its end', status.incarnation, self.job)
        arguments = {"incarnation": status.incarnation, "stop_key": self._stop_key(context)}
        return self.wait(JobFinishedTrigger, "completed", context, limited=False, **arguments)

    def _stop_key(self, context: Any) -> str:
        return self.key(context) if is_true(self.stop_on_kill) else ""

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
        job, flow, conf_file, settings, no_state, and all arguments of spark-submit: see `StartOperator`.
        commit, time, require_state, redeliver, despite_readers: see `RunFlowOperator`.
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
                if start.chosen or start.require_state:
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
            self.tell_log(client)
            if status.state == "running":
                client.control().stop()
        # The program of a job that has just died may be about to restart it.
        if not status.alive and (died or status.state in ("unknown", "stopped")):
            self.log.info('job "%s" is not running: %s', self.job, status.state)
            return {"job": self.job, "state": status.state, "incarnation": status.incarnation}
        if status.state == "running":
            return self.wait(JobEndedTrigger, "ended", context)
        return self.wait(JobSettledTrigger, "settled", context)
