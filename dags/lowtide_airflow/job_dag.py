"""What the DAGs of one job share, and the assets by which they start each other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow.triggers.base import BaseEventTrigger

from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.operators.job_operator import RETRIES, RETRY_DELAY

__all__ = [
    "asset_of",
    "if_it_ran_before",
    "job_dag",
    "parallelism_variable",
    "place_of_job",
    "runs_now",
    "start_of_job",
    "watched",
]

LOG = logging.getLogger(__name__)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
"""Before any run: nothing is made good that lies before a DAG was switched on."""


def job_dag(entry: JobEntry, purpose: str, *, doc: str, **given: Any) -> DAG:
    """A DAG of a job, one run at a time.

    Args:
        entry: the job.
        purpose: what it does, as in its id.
        doc: what its page says, Markdown; the job's own lines follow.
        given: as of `DAG`.
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
        on_failure_callback=_Failed(entry),
        **settings,
    )


class _Failed:
    """Says in the log of a DAG run that failed whom to tell."""

    def __init__(self, entry: JobEntry) -> None:
        self._entry = entry

    def __call__(self, context: Mapping[str, Any]) -> None:
        contact = f"; tell {self._entry.contact}" if self._entry.contact else ""
        LOG.error('job "%s": %s has failed%s', self._entry.name, context["dag_run"].run_id, contact)


def place_of_job(entry: JobEntry) -> dict[str, Any]:
    """What every operator is told of a job."""
    return {"job": entry.name, "connection": entry.connection}


def start_of_job(entry: JobEntry) -> dict[str, Any]:
    """What an operator is told that starts a job; a parallelism that was set by rescaling goes before the file's."""
    kept = entry.settings.get("job.parallelism", "")
    parallelism = f"{{{{ var.value.get('{parallelism_variable(entry)}', '{kept}') }}}}"
    return {
        **place_of_job(entry),
        "flow": entry.flow,
        "conf": entry.conf,
        "settings": {**entry.settings, "job.parallelism": parallelism},
        "submit": entry.submit,
        "spark": asdict(entry.spark) if entry.spark is not None else None,
    }


def runs_now(entry: JobEntry) -> bool:
    """Whether somebody runs a job, or starts it; asked in a task."""
    with LowtideHook(entry.connection).job(entry.name) as job:
        return job.look().alive


def if_it_ran_before(ran: Any, stop: Any) -> Any:
    """The task between a start that failed and the job's start as before.

    It lets go on only what has stopped the job itself: one that did not run when the DAG run began, or that was not
    stopped as something before that was refused, is left as it is.

    Args:
        ran: the task that returned whether it ran.
        stop: the task that stopped it.
    """

    @task.short_circuit(task_id="if_it_ran_before", trigger_rule="one_failed")
    def looked_up(**context: Any) -> bool:
        found = context["ti"].xcom_pull
        return bool(found(task_ids=ran.operator.task_id)) and found(task_ids=stop.task_id) is not None

    return looked_up()


def parallelism_variable(entry: JobEntry) -> str:
    """The Airflow variable that keeps a job's parallelism once it was rescaled."""
    return f"lowtide_parallelism__{entry.dag_name}"


def asset_of(entry: JobEntry, what: str) -> Asset:
    """An asset of a job: "commits", "recoveries", "hours"."""
    return Asset(name=f"lowtide_{what}__{entry.dag_name}", uri=f"lowtide://{quote(entry.name, safe='')}/{what}")


def watched(entry: JobEntry, what: str, trigger: BaseEventTrigger) -> Asset:
    """The same, made by what a trigger tells."""
    asset = asset_of(entry, what)
    return Asset(name=asset.name, uri=asset.uri, watchers=[AssetWatcher(name=asset.name, trigger=trigger)])
