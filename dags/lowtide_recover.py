"""Starts a job again that has died, from its last good commit: one DAG per job of the jobs file.

A watcher in the triggerer sees the death: nobody holds the job's lease, nobody stopped it, and its program has not
begun it again by itself. `recover` chooses the newest commit that is whole, starts the job, and waits until it delivers
beyond the point of its failure; while Kafka, ZooKeeper or the store is away it tries again, for a day. Where a machine
should not decide (all commits are damaged, the flow's own function ended it, it ends again and again, it does not
start) a person is asked: `ask_a_person` waits under *Required actions*, for three days. Approved, the job is started
all the same, without state if no commit is good by then; rejected, it is left.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param, task

from lowtide_airflow.deaths import MOST_ENDED
from lowtide_airflow.job_dag import asset_of, job_dag, start_of_job, watched
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import RecoverFlow
from lowtide_airflow.triggers import JobDiedTrigger

MOST_RUNS = 3
QUESTION = """
{{ ti.xcom_pull(task_ids='recover')['says'] }}

The life that ended: {{ ti.xcom_pull(task_ids='recover')['dead'] }}, its cause:
{{ ti.xcom_pull(task_ids='recover')['cause'] }}

{% if ti.xcom_pull(task_ids='recover')['why'] == 'no_good_commit' -%}
**Approve** starts the job without state, from where its sources were read first. **Reject** leaves it: restore the
store from a backup, then run this DAG again.
{%- else -%}
**Approve** starts the job once more from its last good commit. **Reject** leaves it: mend what ended it, then run
this DAG again.
{%- endif %}
"""


def recover(entry: JobEntry) -> None:
    """The DAG of one job."""
    died = watched(entry, "deaths", JobDiedTrigger(job=entry.name, connection=entry.connection))
    params = {
        "forced": Param(False, type="boolean", description="Start it though a machine should not decide that."),
        "most": Param(MOST_ENDED, type="integer", minimum=0, description="Lives that may end within half an hour."),
    }
    recovered = asset_of(entry, "recoveries")
    schedule = [died] if entry.recover else None
    # A question that nobody has answered keeps no later death waiting; of two runs that start the job, one does.
    runs = {"max_active_runs": MOST_RUNS}
    with job_dag(entry, "recover", doc=__doc__ or "", schedule=schedule, params=params, **runs) as dag:
        first = RecoverFlow(
            task_id="recover",
            **start_of_job(entry),
            forced=dag.param("forced"),
            most=dag.param("most"),
            outlets=[recovered],
        )

        @task.branch
        def is_a_person_needed(done: dict[str, object]) -> str | None:
            return None if done["recovered"] else "ask_a_person"

        ask = ApprovalOperator(
            task_id="ask_a_person",
            subject=f'Start job "{entry.name}" again?',
            body=QUESTION + (f"\n{entry.contact}" if entry.contact else ""),
            response_timeout=timedelta(days=3),
            defaults="Reject",
        )
        approved = RecoverFlow(
            task_id="recover_as_approved",
            **start_of_job(entry),
            forced=True,
            no_state="{{ ti.xcom_pull(task_ids='recover')['why'] == 'no_good_commit' }}",
            outlets=[recovered],
        )
        done: Any = first.output
        is_a_person_needed(done) >> ask >> approved


for each in read_jobs(Path(__file__).parent):
    recover(each)
