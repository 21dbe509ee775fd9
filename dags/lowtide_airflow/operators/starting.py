"""What starts a job, out of what an operator is told as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lowtide_airflow.client import JobClient
from lowtide_airflow.errors import JobsFileRefused
from lowtide_airflow.jobs_file import SparkEntry
from lowtide_airflow.operators.job_operator import JobOperator, is_true
from lowtide_airflow.spark_submit import SparkSubmit
from lowtide_airflow.submission import Begun, begin
from lowtide_airflow.submit import Start, Submit, Supervised

__all__ = ["StartingOperator"]

TAKEN = "lowtide_taken"
"""Under which name a task keeps, over all its tries, with which key a cluster has taken its job."""


class StartingOperator(JobOperator):
    """Starts a job.

    Args:
        job: the job's name.
        flow: flow.py, or flow.py:name, on the machine that starts it.
        conf: the conf file; by default the connection's.
        settings: keys of the conf that are set besides; an empty text leaves a key alone.
        submit: "supervised" or "spark-submit".
        spark: where spark-submit puts it, as `[job.spark]` of the jobs file.
        no_state: begin without state, though there are commits.
        limit_s: how long it may take.
        connection, poll_s: as of `JobOperator`.
    """

    template_fields: Sequence[str] = (
        *JobOperator.template_fields,
        "flow",
        "conf",
        "settings",
        "submit",
        "spark",
        "no_state",
        "limit_s",
    )

    def __init__(
        self,
        *,
        job: Any,
        flow: Any,
        conf: Any = "",
        settings: Any = None,
        submit: Any = "supervised",
        spark: Any = None,
        no_state: Any = False,
        limit_s: Any = 300.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, **kwargs)
        self.flow = flow
        self.conf = conf
        self.settings = settings
        self.submit = submit
        self.spark = spark
        self.no_state = no_state
        self.limit_s = limit_s

    def beginning(self) -> Start:
        """What is started, and from where."""
        return Start(
            flow=str(self.flow),
            conf=str(self.conf or self.hook.programs().conf),
            settings=dict(self.settings or {}),
            no_state=is_true(self.no_state),
        )

    def begin(self, context: Any, client: JobClient, *, dead: int = 0) -> Begun:
        """Submit it once, however often the task is tried.

        Args:
            context: the task's.
            client: the job, connected.
            dead: lives up to this one are known to be over.

        Raises:
            RunsAlready, SubmitFailed: as of `submission.begin`.
        """
        kept = context["task_state_store"] if self.submit == "spark-submit" else None
        begun = begin(
            client,
            self.submitter(),
            self.beginning(),
            self.key(context),
            say=self.log.info,
            dead=dead,
            taken=kept.get(TAKEN) if kept is not None else None,
        )
        if kept is not None and not begun.adopted:
            kept.set(TAKEN, begun.key)
        return begun

    def submitter(self) -> Submit:
        """Who starts it.

        Raises:
            JobsFileRefused: nobody is called so, or it is not said where spark-submit puts it.
        """
        programs, limit_s = self.hook.programs(), float(self.limit_s)
        if self.submit == "supervised":
            return Supervised(programs.lowtide, programs.folder, limit_s)
        where = f'job "{self.job}"'
        if self.submit != "spark-submit" or not self.spark:
            raise JobsFileRefused(
                f"submit is {self.submit!r}, spark {self.spark!r}",
                where=where,
                way_out='give submit = "supervised"; or "spark-submit", and where it puts the job in [job.spark]',
            )
        try:
            spark = msgspec.convert(dict(self.spark), SparkEntry)
        except msgspec.ValidationError as error:
            raise JobsFileRefused(str(error), where=f"{where}, spark", way_out="correct [job.spark]") from error
        return SparkSubmit(self.job, spark, programs.spark_submit, programs.folder, limit_s)
