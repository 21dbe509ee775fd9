"""Buttons of a task instance that lead to its job or snapshot on Lowtide's page.

class TakeSnapshotOperator(BaseOperator):
    operator_extra_links = (SnapshotLink(),)

    def execute(self, context):
        ...
        SnapshotLink.note(context, job="orders", connection="lowtide_default", snapshot="000003-0007")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.sdk.bases.operatorlink import BaseOperatorLink

from lowtide_airflow.compat import has_pages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

PAGE = "plugin/lowtide/lowtide/"
"""The page's path below Airflow's root: the plugin's route in the UI, then the path that its frame shows."""


def page_url(job: str, *, connection: str = "", snapshot: str = "") -> str:
    """Return the address of a job on the page, with a snapshot highlighted.

    Args:
        job: its name.
        connection: the id of its Airflow connection; empty for any that knows the job.
        snapshot: a snapshot's id; empty for none.
    """
    from airflow.configuration import conf

    root = str(conf.get("api", "base_url", fallback="") or "/")
    asked = {"job": job, "connection": connection, "snapshot": snapshot}
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"{root.rstrip('/')}/{PAGE}?{query}"


class JobLink(BaseOperatorLink):
    """Leads to the job of a task."""

    name = "Job in Lowtide"
    key = "lowtide_job"

    @classmethod
    def note(cls, context: Mapping[str, Any], **page: str) -> None:
        """Record the job of a task instance, before it ends.

        Args:
            context: the task's.
            page: arguments of `page_url`.
        """
        context["ti"].xcom_push(key=cls.key, value=page)

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address; empty as long as the task has not recorded its job, and where Airflow shows no pages."""
        from airflow.sdk.execution_time.xcom import XCom

        if not has_pages():
            return ""
        page = XCom.get_value(ti_key=ti_key, key=self.key)
        return page_url(**page) if page else ""


class SnapshotLink(JobLink):
    """Leads to the snapshot of a task."""

    name = "Snapshot in Lowtide"
    key = "lowtide_snapshot"
