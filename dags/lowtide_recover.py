"""Restarts a dead job from its last good commit: one DAG per job of the jobs file.

A watcher in the triggerer detects the death: the job's lease is free, the job was not stopped, and its program has not
restarted it. `recover` chooses the newest commit that is whole, starts the job, and waits until it delivers beyond the
point of failure; while Kafka, ZooKeeper or the store is away it tries again, for a day. If a person has to decide (all
commits are damaged, the flow's own function ended the job, it ends again and again, it does not start), `ask_a_person`
waits under *Required actions*, for three days. *Approve* restarts the job anyway, without state if no commit is good by
then; *Reject* leaves it.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Param, task

from lowtide_airflow.job.deaths import MAX_DEATHS
from lowtide_airflow.job_dag import asset_of, job_dag, param, start_arguments, watched
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import RecoverFlowOperator
from lowtide_airflow.operators.question import ApprovalOperator
from lowtide_airflow.triggers import JobDiedTrigger

MOST_RUNS = 3
QUESTION = """
{{ ti.xcom_pull(task_ids='recover')['says'] }}

Life {{ ti.xcom_pull(task_ids='recover')['dead'] }} ended with:
{{ ti.xcom_pull(task_ids='recover')['cause'] }}

{% if ti.xcom_pull(task_ids='recover')['why'] == 'no_good_commit' -%}
**Approve** restarts the job without state, from where its sources were read first. **Reject** leaves it: restore the
store from a backup, then run this DAG again.
{%- else -%}
**Approve** restarts the job from its last good commit. **Reject** leaves it: correct what ended it, then run this DAG
again.
{%- endif %}
"""


def recover(entry: JobEntry) -> None:
    """The DAG of one job."""
    died = watched(entry, "deaths", JobDiedTrigger(job=entry.name, lowtide_conn_id=entry.connection))
    params = {
        "forced": Param(False, type="boolean", description="Restart it even if a person should decide."),
        "max_deaths": Param(MAX_DEATHS, type="integer", minimum=0, description="Deaths allowed within half an hour."),
    }
    recovered = asset_of(entry, "recoveries")
    schedule = [died] if entry.recover else None
    # An open question must not block the recovery from a later death; of two runs that start the job, only one does.
    runs = {"max_active_runs": MOST_RUNS}
    with job_dag(entry, "recover", doc=__doc__ or "", schedule=schedule, params=params, **runs):
        first = RecoverFlowOperator(
            task_id="recover",
            **start_arguments(entry),
            forced=param("forced"),
            max_deaths=param("max_deaths"),
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
        approved = RecoverFlowOperator(
            task_id="recover_as_approved",
            **start_arguments(entry),
            forced=True,
            no_state="{{ ti.xcom_pull(task_ids='recover')['why'] == 'no_good_commit' }}",
            outlets=[recovered],
        )
        done: Any = first.output
        is_a_person_needed(done) >> ask >> approved


for each in read_jobs(Path(__file__).parent, "recover"):
    recover(each)
