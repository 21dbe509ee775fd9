"""Example of a batch DAG that is triggered by each complete hour of a job's output: one per job that announces hours.

It reports for each hour the first commit after it, if there is one already, with its rows by step. Replace it with your
own: the output of that hour does not change any more.
"""

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.sdk import task

from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.job_dag import asset_of, event_payloads, job_dag
from lowtide_airflow.jobs_file import JobEntry, read_jobs


def hourly_report(entry: JobEntry) -> None:
    """The DAG of one job."""
    with job_dag(entry, "hourly_report", doc=__doc__ or "", schedule=[asset_of(entry, "hours")]):

        @task
        def report(**context: Any) -> list[dict[str, Any]]:
            hours = [hour for event in event_payloads(context) for hour in event["hours"]]
            with LowtideHook(entry.connection).job(entry.name) as job, job.snapshots() as snapshots:
                delivered_ms = job.delivered_ms()
                commits = [each for each in snapshots.all() if each.phase == "committed" and each.manifest]
            found = []
            for hour in hours or [{"from": None, "to": None}]:
                end_ms = datetime.fromisoformat(hour["to"]).timestamp() * 1000 if hour["to"] else 0
                after = next((each for each in commits if each.min_time_ms >= end_ms), None)
                rows: Counter[str] = Counter()
                for part in after.manifest.parts if after and after.manifest else ():
                    rows[part.vertex] += part.rows
                commit = after.id if after else None
                found.append({**hour, "delivered_ms": delivered_ms, "commit": commit, "rows": dict(rows)})
            return found

        report()


for each in read_jobs(Path(__file__).parent, "hourly_report"):
    if each.hour_complete:
        hourly_report(each)
