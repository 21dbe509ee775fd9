"""The notifier: how a job is, why, what to do, and to whom that is handed on."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from seen_job import Job

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

CONTEXT = {
    "dag": None,
    "dag_run": SimpleNamespace(dag_id="revenue", run_id="monday"),
    "ti": SimpleNamespace(task_id="sum"),
}
CALLED: list[Any] = []


def page(context: Any) -> None:
    """Stands in a company's module."""
    CALLED.append(context["lowtide"]["state"])


def notified(**given: Any) -> list[Any]:
    """What a notifier behind ours gets."""
    from airflow.sdk.bases.notifier import BaseNotifier

    from lowtide_airflow.notifications import LowtideNotifier

    class Slack(BaseNotifier):
        template_fields = ("text",)

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text
            self.sent: list[str] = []

        def notify(self, context: Any) -> None:
            self.sent.append(self.text)

    def broken(_context: Any) -> None:
        raise RuntimeError("Slack is away")

    slack = Slack("{{ lowtide.text }}")
    named = f"{__name__}:page" if __name__ in sys.modules else page
    LowtideNotifier(then=[broken, named, slack], **given)(dict(CONTEXT))
    return slack.sent


@pytest.mark.zookeeper
def test_who_is_notified_reads_the_jobs_state_its_cause_and_the_way_out(
    job: Job, connected: dict[str, Any], caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: Any
) -> None:
    from lowtide_airflow.jobs_file import VARIABLE
    from lowtide_snapshots.cause import Cause

    listed = f'[[job]]\nname = "{job.name}"\nflow = "f"\nconnection = "lowtide_test"\ncontact = "orders on call"\n'
    (tmp_path / "jobs.toml").write_text(listed)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "jobs.toml"))
    job.runs()
    job.ends("failed", Cause("flow", "division by zero", "orders.py, step sums", "correct the function"), again=False)
    CALLED.clear()
    given = {name: connected[name] for name in ("job", "lowtide_conn_id")}
    with caplog.at_level(logging.ERROR):
        (text,) = notified(**given)
    assert text.startswith(f'failed: revenue, monday, sum; job "{job.name}" is failed\ndivision by zero')
    for said in ("orders.py, step sums", "- Correct the function.", "ask_a_person", "Notify orders on call."):
        assert said in text
    assert CALLED == ["failed"]
    job.runs()
    (text,) = notified(**given, contact="me")
    assert text == f'failed: revenue, monday, sum; job "{job.name}" is running\nNotify me.'


def test_a_job_that_cannot_be_asked_is_notified_of_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOWTIDE_TEST", '{"conn_type": "lowtide"}')
    (text,) = notified(job="orders", lowtide_conn_id="lowtide_test")
    assert 'job "orders" is unreachable' in text
    assert "ZooKeeper's address is missing" in text


def test_a_run_that_fails_is_named_without_the_task_that_airflow_happens_to_name() -> None:
    from lowtide_airflow.notifications import _failed

    assert _failed({**CONTEXT, "reason": "task_failure"}) == "failed: revenue, monday"
    dag = SimpleNamespace(dag_id="revenue")
    assert _failed({"dag": dag, "run_id": "monday", "reason": "timed_out"}) == "failed: revenue, monday"


def test_every_dag_of_a_job_calls_what_the_jobs_file_names() -> None:
    from lowtide_airflow.job_dag import job_dag
    from lowtide_airflow.jobs_file import JobEntry
    from lowtide_airflow.notifications import LowtideNotifier

    entry = JobEntry("orders", "f", notify=("company.alerts:page",))
    callback = job_dag(entry, "submit", doc="").on_failure_callback
    (found,) = callback if isinstance(callback, list) else [callback]
    assert isinstance(found, LowtideNotifier)
    assert (found.job, found.then) == ("orders", ["company.alerts:page"])
