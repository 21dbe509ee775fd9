"""Announces each hour of a job's output that is complete: one DAG per job of the jobs file that wants it.

An hour is complete when all of its output is durable in the sinks: it rests on the job's delivered time, never on min
time, and is so for good. A watcher in the triggerer sees it; this DAG makes the asset `lowtide_hours__JOB` of it, which
starts every DAG that is scheduled on it, with the hours as `hours` in the asset's event: each has `from` and `to`, ISO.
Run by hand it waits for the hour that it is given.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Param, task

from lowtide_airflow.asset_events import payloads
from lowtide_airflow.job_dag import asset_of, job_dag, place_of_job, watched
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.sensors import DeliveredTimeSensor
from lowtide_airflow.triggers import DeliveredTimePassedTrigger

HOUR = timedelta(hours=1)


def hour_complete(entry: JobEntry) -> None:
    """The DAG of one job."""
    trigger = DeliveredTimePassedTrigger(job=entry.name, connection=entry.connection, every_s=3600)
    params = {
        "hour": Param(
            None, type=["null", "string"], format="date-time", description="Run by hand: the hour's beginning, UTC."
        )
    }
    complete = asset_of(entry, "hours")
    schedule = [watched(entry, "delivered_hours", trigger)]
    with job_dag(entry, "hour_complete", doc=__doc__ or "", schedule=schedule, params=params):

        @task
        def find(**context: Any) -> list[dict[str, str]]:
            told = [(said["from_ms"], said["to_ms"]) for said in payloads(context)]
            hours = [tuple(datetime.fromtimestamp(ms / 1000, UTC) for ms in each) for each in sorted(told)]
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
            **place_of_job(entry),
            at="{{ (ti.xcom_pull(task_ids='find') | last)['to'] }}",
            timeout=timedelta(days=7),
        )
        hours >> wait >> announce(hours)


for each in read_jobs(Path(__file__).parent):
    if each.hour_complete:
        hour_complete(each)
