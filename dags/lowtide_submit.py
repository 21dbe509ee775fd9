"""Starts a job from Airflow: one DAG per job of the jobs file.

The job outlives the task and Airflow's worker. However often the task is tried, one life of the job is begun for one
DAG run. It begins from the job's last good commit, if it has one.
"""

from pathlib import Path

from airflow.sdk import Param

from lowtide_airflow.job_dag import job_dag, start_of_job
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import RunFlow


def submit(entry: JobEntry) -> None:
    """The DAG of one job."""
    params = {
        "if_running": Param(
            "fail", type="string", enum=["fail", "leave"], description="What to do with a job that runs already."
        ),
        "no_state": Param(
            False, type="boolean", description="Begin without state, at the sources' beginning, despite commits."
        ),
    }
    with job_dag(entry, "submit", doc=__doc__ or "", params=params) as dag:
        RunFlow(
            task_id="run",
            **start_of_job(entry),
            if_running=dag.param("if_running"),
            no_state=dag.param("no_state"),
        )


for each in read_jobs(Path(__file__).parent):
    submit(each)
