"""The button of a task instance that leads to what it did to a job, on Lowtide's page.

class TakeSnapshot(BaseOperator):
    operator_extra_links = (SnapshotLink(),)

    def execute(self, context):
        ...
        SnapshotLink.note(context, job="orders", connection="lowtide_default", snapshot="000003-0007")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.sdk.bases.operatorlink import BaseOperatorLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

__all__ = ["PAGE", "JobLink", "SnapshotLink", "page_url"]

PAGE = "plugin/lowtide/lowtide/"
"""Where the page is below Airflow's root: the plugin's route in the UI, and behind it the path that its frame shows."""


def page_url(job: str, *, connection: str = "", snapshot: str = "") -> str:
    """Return the address of a job on the page, with a snapshot brought out.

    Args:
        job: Its name.
        connection: The id of the Airflow connection to its place; empty for whichever knows the job.
        snapshot: A snapshot's id; empty for none.
    """
    from airflow.configuration import conf

    root = str(conf.get("api", "base_url", fallback="") or "/")
    asked = {"job": job, "connection": connection, "snapshot": snapshot}
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"{root.rstrip('/')}/{PAGE}?{query}"


class JobLink(BaseOperatorLink):
    """Leads to the job that a task was about."""

    name = "Job in Lowtide"
    key = "lowtide_job"

    @classmethod
    def note(cls, context: Mapping[str, Any], **place: str) -> None:
        """Say what the task instance is about, before it ends.

        Args:
            context: The task's.
            place: As of `page_url`.
        """
        context["ti"].xcom_push(key=cls.key, value=place)

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address; empty as long as the task has not said what it is about."""
        from airflow.sdk.execution_time.xcom import XCom

        place = XCom.get_value(ti_key=ti_key, key=self.key)
        return page_url(**place) if place else ""


class SnapshotLink(JobLink):
    """Leads to the snapshot that a task took, verified or committed."""

    name = "Snapshot in Lowtide"
    key = "lowtide_snapshot"
