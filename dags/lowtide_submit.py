"""Starts a job from Airflow: one DAG per job of the jobs file.

The job outlives the task and Airflow's worker. One DAG run begins one life of the job, however often its task is tried.
It begins from the job's last good commit, if there is one.
"""

from pathlib import Path

from airflow.sdk import Param

from lowtide_airflow.job_dag import job_dag, param, start_arguments
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import RunFlowOperator


def submit(entry: JobEntry) -> None:
    """The DAG of one job."""
    params = {
        "if_running": Param(
            "fail", type="string", enum=["fail", "leave"], description="What to do with a job that runs already."
        ),
        "no_state": Param(
            False, type="boolean", description="Begin without state, from the sources' beginning, despite commits."
        ),
        "require_state": Param(False, type="boolean", description="Refuse to start a job that has no commit."),
    }
    with job_dag(entry, "submit", doc=__doc__ or "", params=params):
        RunFlowOperator(
            task_id="run",
            **start_arguments(entry),
            if_running=param("if_running"),
            no_state=param("no_state"),
            require_state=param("require_state"),
        )


for each in read_jobs(Path(__file__).parent, "submit"):
    submit(each)
