"""Assets to schedule DAGs on: the files of a job's sink, a folder at a time.

from airflow.sdk import DAG, task
from lowtide_airflow.assets import event_payloads, files_asset

with DAG("revenue", schedule=[files_asset("orders", "archive")]):

    @task
    def revenue(**context):
        for hour in event_payloads(context):
            print(hour["from"], hour["to"], hour["files"])

    revenue()
"""

from __future__ import annotations

from airflow.sdk import Asset, AssetWatcher

from lowtide_airflow.asset_uris import FILES, uri_of
from lowtide_airflow.jobs_file import name_in_ids
from lowtide_airflow.triggers.watcher import FolderCompleteTrigger, event_payloads

__all__ = ["event_payloads", "files_asset"]


def files_asset(job: str, sink: str, *, lowtide_conn_id: str = "lowtide_default", poll_interval: float = 1.0) -> Asset:
    """Return the asset that is updated once a folder of a sink of files is complete: an hour, if its folders are hours.

    A DAG run begins when there are folders that no run of the DAG has had: one of them, or several that were completed
    meanwhile. `event_payloads(context)` returns them in a task, the oldest first, each a dict with `job`, `sink`,
    `from`, `to`, `folder`, `files` and `done`; see `FolderCompleteTrigger`. A folder may come once more if the
    triggerer was restarted within a minute.

    Args:
        job: the job's name.
        sink: the sink's name in the flow, which `write` was given.
        lowtide_conn_id: the Airflow connection's id.
        poll_interval: seconds between two polls of ZooKeeper.
    """
    trigger = FolderCompleteTrigger(job=job, sink=sink, lowtide_conn_id=lowtide_conn_id, poll_interval=poll_interval)
    name = f"lowtide_files__{name_in_ids(job)}__{name_in_ids(sink)}"
    return Asset(name=name, uri=uri_of(job, FILES, sink), watchers=[AssetWatcher(name=name, trigger=trigger)])
