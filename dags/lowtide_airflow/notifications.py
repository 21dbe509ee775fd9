"""A notifier for a DAG's or a task's callbacks: what has failed, how the job is, why, and what to do.

from lowtide_airflow.notifications import LowtideNotifier

with DAG("revenue", on_failure_callback=LowtideNotifier(job="orders", then=[SlackNotifier(text="{{ lowtide.text }}")])):
    ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from airflow.configuration import conf
from airflow.sdk.bases.notifier import BaseNotifier

from lowtide_airflow.compat import AirflowException
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.jobs_file import JobEntry, jobs_to_recover
from lowtide_airflow.ui.job_page import JobPage
from lowtide_airflow.ui.links import page_url
from lowtide_snapshots.errors import LowtideError

__all__ = ["LowtideNotifier"]

Next = Callable[[Any], Any] | str


class LowtideNotifier(BaseNotifier):
    """Logs what has failed and how the job is, and hands that on to other notifiers.

    Each of `then` gets the callback's context with `lowtide` in it: `text`, and its parts `job`, `connection`, `state`,
    `incarnation`, `why`, `to_do` (a list of sentences), `contact`, `page`. A template reads `{{ lowtide.text }}`. One
    that fails is logged and keeps no other from being called.

    Args:
        job: the job's name.
        lowtide_conn_id: the Airflow connection's id.
        then: other notifiers, or functions of the context; a text names one, `"package.module:name"`, and is looked up
            when it is called.
        contact: whom to notify; by default the one in the jobs file.
        kwargs: see `BaseNotifier`.
    """

    template_fields: Sequence[str] = ("job", "lowtide_conn_id", "contact")

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str = LowtideHook.default_conn_name,
        then: Sequence[Next] = (),
        contact: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.lowtide_conn_id = lowtide_conn_id
        self.then = list(then)
        self.contact = contact

    def notify(self, context: Any) -> None:
        """Log it, and call the others."""
        found = self._found(context)
        self.log.error("%s", found["text"])
        for each in self.then:
            try:
                following = resolve_name(each) if isinstance(each, str) else each
                following({**context, "lowtide": found})
            except Exception:
                self.log.exception("%r was not notified", each)

    def _found(self, context: Any) -> dict[str, Any]:
        entry = self._entry()
        contact = self.contact or (entry.contact if entry is not None else "")
        found: dict[str, Any] = {"job": self.job, "connection": self.lowtide_conn_id, "contact": contact}
        found |= {"page": page_url(self.job, connection=self.lowtide_conn_id)}
        try:
            with LowtideHook(self.lowtide_conn_id).job(self.job) as client:
                seen = JobPage(self.lowtide_conn_id, self.job).answer(client, entry, time.time_ns() // 1_000_000)
            found |= {"state": seen.state, "incarnation": seen.incarnation, "why": seen.why, "to_do": list(seen.to_do)}
        except (LowtideError, AirflowException) as error:
            found |= {"state": "unreachable", "incarnation": 0, "why": str(error), "to_do": []}
        lines = [
            f'{_failed(context)}; job "{self.job}" is {found["state"]}',
            *([found["why"]] if found["why"] else []),
            *(f"- {each}" for each in found["to_do"]),
            *([f"Notify {contact}."] if contact else []),
        ]
        return found | {"text": "\n".join(lines)}

    def _entry(self) -> JobEntry | None:
        with suppress(LowtideError):
            for each in jobs_to_recover(conf.get("core", "dags_folder")):
                if (each.name, each.connection) == (self.job, self.lowtide_conn_id):
                    return each
        return None


def _failed(context: Any) -> str:
    """The thing that has failed: a task if the callback is a task's, else a run, whose context has any task of it."""
    run, dag = context.get("dag_run"), context.get("dag")
    task = None if "reason" in context else context.get("ti")
    parts = [
        getattr(run or dag, "dag_id", ""),
        getattr(run, "run_id", "") or context.get("run_id", ""),
        getattr(task, "task_id", ""),
    ]
    return f"failed: {', '.join(each for each in parts if each) or 'a run'}"
