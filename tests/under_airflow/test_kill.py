"""A task that runs a job to its end: a person ends the task, or the job dies under it."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
from airflow_demo.killing import kill_driver
from tests.waiting import HANGS_S, wait_until

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]

WITHIN_S = 150.0
TRIGGERER_S = 8.0
"""A task that is ended before the triggerer has begun to wait for it is ended without a word."""


@pytest.mark.usefixtures("airflow_home")
@pytest.mark.parametrize(("dag", "state"), [("attached_working", "running"), ("attached_deferred", "deferred")])
def test_a_job_is_stopped_with_the_task_that_began_it(stage: Stage, dag: str, state: str) -> None:
    from airflow.triggers.base import BaseTrigger

    if state == "deferred" and not hasattr(BaseTrigger, "on_kill"):
        pytest.skip("triggers of this Airflow do not learn that a task was killed")
    stage.stop_job()
    stage.api.unpause(dag)
    run = stage.api.trigger(dag)
    with stage.client() as job:
        wait_until(lambda: job.status().state == "running", WITHIN_S, "the job runs")
        wait_until(lambda: stage.states(run) == {state}, WITHIN_S, "the task waits for the job's end")
        begun = job.status()
        assert begun.life is not None
        time.sleep(TRIGGERER_S)
        assert begun.life.submission == f"airflow:{dag}/{run.id}/run"
        stage.api.fail(dag, run.id, "run")
        wait_until(lambda: job.status().state == "stopped", HANGS_S, "the end of the job")
        assert job.status().incarnation == begun.incarnation
    wait_until(lambda: not stage.runs_job(), HANGS_S, "the end of its program")
    told = stage.api.log(dag, run.id, "run").splitlines()
    assert any(line.endswith(own_log(stage, begun.incarnation)) for line in told), "\n".join(told)


def own_log(stage: Stage, incarnation: int) -> str:
    """The line that ends with where the job's own log is."""
    place = f"{socket.gethostname()}:{stage.jobs.log_file}"
    return f'job "{stage.jobs.name}", life {incarnation}: its own log is {place}'


@pytest.mark.nightly
def test_a_task_whose_job_has_died_shows_the_last_lines_of_the_jobs_log(stage: Stage) -> None:
    stage.stop_job()
    dag = "attached_working"
    stage.api.unpause(dag)
    run = stage.api.trigger(dag)
    with stage.client() as job:
        wait_until(lambda: stage.states(run) == {"running"}, WITHIN_S, "the task")
        wait_until(lambda: "waiting for its end" in stage.api.log(dag, run.id, "run"), WITHIN_S, "the job runs")
        dead = job.status().incarnation
        kill_driver(stage.jobs)
        wait_until(lambda: stage.states(run) == {"failed"}, WITHIN_S, "the end of the task")
        told = stage.api.log(dag, run.id, "run")
        _, _, after = told.rpartition(own_log(stage, dead))
        assert after.count("| ") > 1, told
        wait_until(lambda: job.status().incarnation > dead and job.status().state == "running", WITHIN_S, "recovery")
