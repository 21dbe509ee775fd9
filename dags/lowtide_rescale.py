"""Gives a job another number of workers per level: one DAG per job of the jobs file.

It takes and commits a snapshot, stops the job and starts it with the new parallelism from that snapshot, so that little
is read again. A job can have as many workers as lanes, a number that its first start has frozen. The parallelism is
kept in an Airflow variable for every later start of the job from here; delete the variable to go back to the jobs file.
If the job does not start with it, it is started as before.
"""

from pathlib import Path
from typing import Any

from airflow.sdk import Param, Variable, task

from lowtide_airflow.compat import AirflowFailException
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.job_dag import (
    if_it_ran_before,
    is_running,
    job_arguments,
    job_dag,
    parallelism_variable,
    start_arguments,
)
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import RunFlowOperator, StopFlowOperator, TakeSnapshotOperator


def rescale(entry: JobEntry) -> None:
    """The DAG of one job."""
    params = {"parallelism": Param(2, type="integer", minimum=1, description="Workers of each level after the first.")}
    job, start = job_arguments(entry), start_arguments(entry)
    rescaled = {**start, "settings": {**start["settings"], "job.parallelism": "{{ params.parallelism }}"}}
    with job_dag(entry, "rescale", doc=__doc__ or "", params=params):

        @task
        def check(**context: Any) -> bool:
            asked = context["params"]["parallelism"]
            with LowtideHook(entry.connection).job(entry.name) as client:
                lanes = client.status().lanes
            if asked > lanes:
                raise AirflowFailException(
                    f'job "{entry.name}" has {lanes} lanes since its first start, and a lane has one worker: '
                    f"give {lanes} or less"
                )
            return is_running(entry)

        @task
        def keep(**context: Any) -> None:
            asked = str(context["params"]["parallelism"])
            Variable.set(parallelism_variable(entry), asked, description="Workers per level of a Lowtide job")

        take = TakeSnapshotOperator(task_id="take", **job, commit=True)
        stop = StopFlowOperator(task_id="stop", **job)
        run = RunFlowOperator(task_id="run", **rescaled)
        back = RunFlowOperator(task_id="run_as_before", **start, if_running="leave")
        ran = check()
        ran >> take >> stop >> run >> keep()
        run >> if_it_ran_before(ran, stop) >> back


for each in read_jobs(Path(__file__).parent, "rescale"):
    rescale(each)
