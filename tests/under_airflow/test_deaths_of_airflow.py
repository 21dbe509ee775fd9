"""Deaths of Airflow's own processes while they handle a job: it has one life, each snapshot is taken once."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow_demo.killing import kill_driver
from tests.waiting import HANGS_S, wait_until

from tests.driver import below

from .conftest import SUBMIT_WITHIN_S

if TYPE_CHECKING:
    from embedded_airflow import DagRun

    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]

SNAPSHOT_WITHIN_S = 120.0
RECOVERED_WITHIN_S = 150.0
AWAY_S = 10.0


def working(stage: Stage) -> list[int]:
    """The worker that has a task, and that task's processes; one with a session of its own is none of Airflow's."""
    airflows = stage.airflow.part("scheduler").processes()
    workers = [pid for pid in airflows if is_busy_worker(pid)]
    return [*workers, *(pid for worker in workers for pid in below(worker) if pid in airflows)]


def is_busy_worker(pid: int) -> bool:
    with suppress(OSError):
        title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return title.startswith("airflow worker -- LocalExecutor") and "<idle>" not in title
    return False


def test_a_worker_that_is_killed_between_submit_and_record_leaves_one_life(stage: Stage) -> None:
    stage.stop_job()
    with stage.client() as job:
        before = job.status().incarnation
        stage.api.unpause(stage.dag("submit"))
        run = stage.api.trigger(stage.dag("submit"))
        # From here on the program has its life in ZooKeeper, and Airflow knows nothing of it yet.
        wait_until(lambda: job.status().incarnation > before or stage.api.run(run.dag, run.id).over, HANGS_S, "a life")
        pids = working(stage)
        assert pids
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        stage.api.wait(run.dag, run.id, SUBMIT_WITHIN_S)
        tries = {task.id: task.tries for task in stage.api.tasks(run.dag, run.id)}
        assert tries == {"run": 2}
        assert job.status().incarnation == before + 1
        assert job.status().state == "running"
    assert stage.runs_job()
    state = stage.jobs.state()
    assert state is not None
    assert state.incarnation == before + 1


def test_a_scheduler_that_was_away_sees_the_snapshots_through_and_takes_none_twice(stage: Stage) -> None:
    stage.submit()
    stage.order()
    before = stage.ended_snapshot_runs()
    with stage.client() as job:
        committed = len(job.commits())
        with stage.snapshots():
            run = stage.api.trigger(stage.dag("snapshot"))
            wait_until(lambda: stage.states(run) & {"running", "deferred"} != set(), SNAPSHOT_WITHIN_S, "a task")
            stage.airflow.kill("scheduler")
            time.sleep(AWAY_S)
            stage.airflow.start("scheduler")
            stage.api.wait(run.dag, run.id, SNAPSHOT_WITHIN_S)
        runs = stage.snapshot_runs(before)
        assert [each.state for each in runs] == ["success"] * len(runs)
        assert len(job.commits()) == committed + len(runs)


def test_a_death_is_reported_though_the_triggerer_was_away_and_dies_once_more(stage: Stage) -> None:
    stage.submit()
    stage.order()
    dag = stage.dag("recover")
    before = {run.id for run in stage.api.runs(dag)}

    def runs() -> list[DagRun]:
        return [run for run in stage.api.runs(dag) if run.id not in before]

    with stage.client() as job:
        dead = job.status().incarnation
        stage.airflow.kill("triggerer")
        kill_driver(stage.jobs)
        stage.order()
        stage.airflow.start("triggerer")
        wait_until(lambda: bool(runs()), HANGS_S, "a run of the recover DAG")
        # It may have sent no more than this one event, and waits for what the run has begun.
        stage.airflow.kill("triggerer")
        stage.airflow.start("triggerer")
        stage.api.wait(dag, runs()[0].id, RECOVERED_WITHIN_S)
        # The one that began again may report it once more.
        wait_until(lambda: all(run.over for run in runs()), RECOVERED_WITHIN_S, "the end of all runs")
        assert {run.state for run in runs()} == {"success"}
        assert (job.status().state, job.status().incarnation) == ("running", dead + 1)
