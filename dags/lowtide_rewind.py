"""Stops a job and begins it again from a chosen commit: one DAG per job of the jobs file.

Without redelivery nothing is delivered twice, whichever commit is chosen: the state goes back, the output goes on. With
it everything from the commit on is delivered again, as a new output generation, and commits above it are dropped: for a
fault of the flow that was corrected after its output had gone out. `look_ahead` says beforehand what the job begins
with, how many records are read again, and how many of them readers see once more; if that is refused, nothing is
stopped. Where the job does not start so, it is started as before, if it ran before. The run is over when all that was
to be delivered before it is: until then, hours that were told to be complete are delivered again, and no DAG that works
on them should run.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Param, task
from airflow.sdk.exceptions import AirflowFailException

from lowtide_airflow.job_dag import if_it_ran_before, job_dag, place_of_job, runs_now, start_of_job
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import PreviewFlow, RunFlow, StopFlow
from lowtide_airflow.sensors import DeliveredTimeSensor


def rewind(entry: JobEntry) -> None:
    """The DAG of one job."""
    params = {
        "commit": Param(None, type=["null", "string"], description="From this commit, by its id or name."),
        "time": Param(
            None, type=["null", "string"], format="date-time", description="Or from the newest that ends before this."
        ),
        "redeliver": Param(False, type="boolean", description="Deliver everything from there on again."),
    }
    with job_dag(entry, "rewind", doc=__doc__ or "", params=params) as dag:
        chosen = {name: dag.param(name) for name in params}

        @task
        def choose(**context: Any) -> bool:
            params = context["params"]
            if (params["commit"] is None) == (params["time"] is None):
                raise AirflowFailException("commit and time name different beginnings: give one of them")
            return runs_now(entry)

        look_ahead = PreviewFlow(task_id="look_ahead", **start_of_job(entry), **chosen)
        stop = StopFlow(task_id="stop", **place_of_job(entry))
        run = RunFlow(task_id="run", **start_of_job(entry), **chosen)
        back = RunFlow(task_id="run_as_before", **start_of_job(entry), if_running="leave")
        # What was told before the rewind stays told: only what is told after it speaks of this output.
        delivered = DeliveredTimeSensor(
            task_id="delivered",
            **place_of_job(entry),
            at="{{ macros.datetime.utcnow().isoformat() }}",
            timeout=timedelta(days=1),
            if_untold="skip",
        )
        ran = choose()
        ran >> look_ahead >> stop >> run >> delivered
        run >> if_it_ran_before(ran, stop) >> back


for each in read_jobs(Path(__file__).parent):
    rewind(each)
