"""Stops a job and restarts it from a chosen commit: one DAG per job of the jobs file.

Without redelivery nothing is delivered twice, whichever commit is chosen: the state goes back, the output goes on. With
redelivery everything from the commit on is delivered again, as a new output generation, and later commits are dropped:
for a fault of the flow that was corrected after its output had gone out. `look_ahead` previews what the job begins
with, how many records are read again, and how many of them readers see once more; if it is refused, nothing is stopped.
A redelivery that other jobs of the graph read is refused with their names, unless `despite_readers` is set.
If the job does not start from there, it is started as before, provided that it ran before. The run ends when everything
from before it is delivered: until then, hours announced as complete are delivered again, and no DAG that reads them
should run.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Param, task

from lowtide_airflow.compat import AirflowFailException
from lowtide_airflow.job_dag import if_it_ran_before, is_running, job_arguments, job_dag, param, start_arguments
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import PreviewFlowOperator, RunFlowOperator, StopFlowOperator
from lowtide_airflow.sensors import DeliveredTimeSensor


def rewind(entry: JobEntry) -> None:
    """The DAG of one job."""
    params = {
        "commit": Param(None, type=["null", "string"], description="Restart from this commit, an id or a name."),
        "time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            description="Or from the newest commit before this.",
        ),
        "redeliver": Param(False, type="boolean", description="Deliver everything from there on again."),
        "despite_readers": Param(
            False,
            type="boolean",
            description="Redeliver even if other jobs of the graph read it a second time.",
        ),
    }
    with job_dag(entry, "rewind", doc=__doc__ or "", params=params):
        chosen: dict[str, Any] = {name: param(name) for name in params}

        @task
        def choose(**context: Any) -> bool:
            params = context["params"]
            if (params["commit"] is None) == (params["time"] is None):
                raise AirflowFailException("commit and time are two ways to choose the commit: give one of them")
            return is_running(entry)

        look_ahead = PreviewFlowOperator(task_id="look_ahead", **start_arguments(entry), **chosen)
        stop = StopFlowOperator(task_id="stop", **job_arguments(entry))
        run = RunFlowOperator(task_id="run", **start_arguments(entry), **chosen)
        back = RunFlowOperator(task_id="run_as_before", **start_arguments(entry), if_running="leave")
        # Delivered times from before the rewind stay published: only a later one is about this output.
        delivered = DeliveredTimeSensor(
            task_id="delivered",
            **job_arguments(entry),
            at="{{ macros.datetime.utcnow().isoformat() }}",
            timeout=timedelta(days=1),
            if_at_least_once="skip",
        )
        ran = choose()
        ran >> look_ahead >> stop >> run >> delivered
        run >> if_it_ran_before(ran, stop) >> back


for each in read_jobs(Path(__file__).parent, "rewind"):
    rewind(each)
