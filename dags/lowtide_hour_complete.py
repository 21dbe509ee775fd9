"""Announces each complete hour of a job's output: one DAG per job of the jobs file with `hour_complete`.

An hour is complete when all of its output is durable in the sinks. That follows from the job's delivered time, never
from min time, and is final. A watcher in the triggerer detects it; this DAG updates the asset `lowtide_hours__JOB`,
which triggers every DAG scheduled on it. The asset's event has the hours as `hours`, each with `from` and `to`, ISO.
Started by hand it waits for the given hour.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Param, task

from lowtide_airflow.job_dag import asset_of, event_payloads, job_arguments, job_dag, watched
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.sensors import DeliveredTimeSensor
from lowtide_airflow.triggers import DeliveredTimePassedTrigger

HOUR = timedelta(hours=1)


def hour_complete(entry: JobEntry) -> None:
    """The DAG of one job."""
    trigger = DeliveredTimePassedTrigger(job=entry.name, lowtide_conn_id=entry.connection, every_s=3600)
    params = {
        "hour": Param(
            None,
            type=["null", "string"],
            format="date-time",
            description="For a run by hand: the hour's start, UTC.",
        )
    }
    complete = asset_of(entry, "hours")
    schedule = [watched(entry, "delivered_hours", trigger)]
    with job_dag(entry, "hour_complete", doc=__doc__ or "", schedule=schedule, params=params):

        @task
        def find(**context: Any) -> list[dict[str, str]]:
            slots = sorted((slot["from_ms"], slot["to_ms"]) for slot in event_payloads(context))
            hours = [tuple(datetime.fromtimestamp(ms / 1000, UTC) for ms in slot) for slot in slots]
            if not hours:
                asked = context["params"]["hour"]
                at = datetime.fromisoformat(asked) if asked else datetime.now(UTC) - HOUR
                begins = at.replace(minute=0, second=0, microsecond=0, tzinfo=at.tzinfo or UTC)
                hours = [(begins, begins + HOUR)]
            return [{"from": begins.isoformat(), "to": ends.isoformat()} for begins, ends in hours]

        @task(outlets=[complete])
        def announce(hours: list[dict[str, str]], **context: Any) -> None:
            context["outlet_events"][complete].extra = {"job": entry.name, "hours": hours}

        hours: Any = find()
        wait = DeliveredTimeSensor(
            task_id="wait",
            **job_arguments(entry),
            at="{{ (ti.xcom_pull(task_ids='find') | last)['to'] }}",
            timeout=timedelta(days=7),
        )
        hours >> wait >> announce(hours)


for each in read_jobs(Path(__file__).parent, "hour_complete"):
    if each.hour_complete:
        hour_complete(each)
