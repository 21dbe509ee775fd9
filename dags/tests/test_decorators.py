"""`@task.lowtide`: what a function gets, and what Airflow checks when it reads the DAG file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from seen_job import Job

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def made(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator that a function becomes."""
    from airflow.sdk import DAG

    from lowtide_airflow.decorators import lowtide_task

    with DAG("d", schedule=None, default_args={"job": "of the whole DAG"}):
        decorated: Any = lowtide_task(function, job="orders", **kwargs)
        return decorated(*args).operator


def test_airflow_knows_the_decorator() -> None:
    from airflow.sdk import task

    from lowtide_airflow.decorators import lowtide_task

    assert task.lowtide is lowtide_task


def test_the_tasks_arguments_are_checked_when_the_dag_file_is_read() -> None:
    def report(job: Any, hour: str, ds: str) -> None: ...

    assert made(report, "13").op_args == ("13",)
    assert (made(report, "13").job, made(report, "13").retries) == ("orders", 2)
    with pytest.raises(TypeError, match="hour"):
        made(report)
    with pytest.raises(ValueError, match="has no parameter job"):
        made(lambda hour: hour, "13")


@pytest.mark.zookeeper
def test_a_function_gets_the_jobs_client_its_arguments_and_the_context(job: Job, connected: dict[str, Any]) -> None:
    def report(hour: str, job: Any, ds: str) -> tuple[Any, ...]:
        return hour, job.status().state, ds

    def all_of_it(job: Any, **context: Any) -> list[str]:
        return [job.job, *sorted(context)]

    job.runs()
    instance = SimpleNamespace(xcom_push=lambda **_: None)
    context = {"ti": instance, "ds": "2026-11-27"}
    for function, arguments, found in (
        (report, ["13"], ("13", "running", "2026-11-27")),
        (all_of_it, [], [job.name, "ds", "ti"]),
    ):
        operator = made(function, *arguments)
        operator.job, operator.lowtide_conn_id = job.name, connected["lowtide_conn_id"]
        assert operator.execute(context) == found
