"""Parts that a job's DAGs share: settings, arguments of operators, and the assets by which they trigger each other."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow.triggers.base import BaseEventTrigger

from lowtide_airflow.asset_uris import uri_of
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.jobs_file import JobEntry, SparkEntry
from lowtide_airflow.notifications import LowtideNotifier
from lowtide_airflow.operators.base import RETRIES, RETRY_DELAY
from lowtide_airflow.triggers.watcher import event_payloads

__all__ = [
    "asset_of",
    "event_payloads",
    "if_it_ran_before",
    "is_running",
    "job_arguments",
    "job_dag",
    "parallelism_variable",
    "param",
    "start_arguments",
    "watched",
]

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
"""Before any run: nothing from before a DAG was switched on is caught up on."""


def job_dag(entry: JobEntry, purpose: str, *, doc: str, **given: Any) -> DAG:
    """Return a DAG of a job, one run at a time.

    Args:
        entry: the job.
        purpose: what the DAG does, as in its id.
        doc: the text of its page, Markdown; facts about the job are appended.
        given: further arguments of `DAG`.
    """
    facts = f"\n\n**Job** `{entry.name}` of connection `{entry.connection}`, flow `{entry.flow}`."
    contact = f" **When a person is needed**: {entry.contact}." if entry.contact else ""
    settings = {"schedule": None, "catchup": False, "max_active_runs": 1, "start_date": BEGAN} | given
    return DAG(
        dag_id=entry.dag_id(purpose),
        dag_display_name=f"{entry.name}: {purpose.replace('_', ' ')}",
        doc_md=doc.strip() + facts + contact,
        tags=["lowtide", entry.dag_name],
        default_args={"owner": entry.owner, "retries": RETRIES, "retry_delay": RETRY_DELAY},
        on_failure_callback=LowtideNotifier(
            job=entry.name, lowtide_conn_id=entry.connection, then=entry.notify, contact=entry.contact
        ),
        **settings,
    )


def job_arguments(entry: JobEntry) -> dict[str, Any]:
    """Return the arguments that every operator and sensor of a job takes; they wait in the triggerer."""
    return {"job": entry.name, "lowtide_conn_id": entry.connection, "deferrable": True}


def param(name: str) -> str:
    """Return the template of a parameter of the DAG; one that is None becomes an empty text."""
    return f"{{{{ '' if params.{name} is none else params.{name} }}}}"


def start_arguments(entry: JobEntry) -> dict[str, Any]:
    """Return the arguments of operators that start a job; a parallelism kept by *rescale* overrides the jobs file's."""
    listed = entry.settings.get("job.parallelism", "")
    parallelism = f"{{{{ var.value.get('{parallelism_variable(entry)}', '{listed}') }}}}"
    return {
        **job_arguments(entry),
        "flow": entry.flow,
        "conf_file": entry.conf,
        "settings": {**entry.settings, "job.parallelism": parallelism},
        **(_spark_arguments(entry.spark) if entry.spark is not None else {}),
    }


def _spark_arguments(entry: SparkEntry) -> dict[str, Any]:
    given = asdict(entry)
    return given | {"yarn_queue": given.pop("queue"), "spark_properties": given.pop("properties")}


def is_running(entry: JobEntry) -> bool:
    """Return whether a job runs or is being started; for use in a task."""
    with LowtideHook(entry.connection).job(entry.name) as job:
        return job.status().alive


def if_it_ran_before(ran: Any, stop: Any) -> Any:
    """Return the task between a start that failed and the job's start as before.

    It continues only if this DAG run stopped the job: a job that did not run before, or that was not stopped because
    an earlier task was refused, is left alone.

    Args:
        ran: the task that returned whether the job ran.
        stop: the task that stopped it.
    """

    @task.short_circuit(task_id="if_it_ran_before", trigger_rule="one_failed")
    def was_stopped_here(**context: Any) -> bool:
        pull = context["ti"].xcom_pull
        return bool(pull(task_ids=ran.operator.task_id)) and pull(task_ids=stop.task_id) is not None

    return was_stopped_here()


def parallelism_variable(entry: JobEntry) -> str:
    """Return the Airflow variable that keeps a job's parallelism after a rescale."""
    return f"lowtide_parallelism__{entry.dag_name}"


def asset_of(entry: JobEntry, what: str) -> Asset:
    """Return an asset of a job: "commits", "recoveries", "hours"."""
    return Asset(name=f"lowtide_{what}__{entry.dag_name}", uri=uri_of(entry.name, what))


def watched(entry: JobEntry, what: str, trigger: BaseEventTrigger) -> Asset:
    """Return an asset of a job that a trigger's events update."""
    asset = asset_of(entry, what)
    return Asset(name=asset.name, uri=asset.uri, watchers=[AssetWatcher(name=asset.name, trigger=trigger)])
