"""A job dies, and Airflow recovers it without help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from airflow_demo.killing import kill_driver
from tests.waiting import HANGS_S, wait_until

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]

RECOVERED_WITHIN_S = 150.0


def test_a_driver_that_was_killed_is_begun_again_once_from_its_last_commit(stage: Stage) -> None:
    stage.submit()
    stage.order()
    dag = stage.dag("recover")
    before = {run.id for run in stage.api.runs(dag)}
    with stage.client() as job, stage.snapshots():
        committed = len(job.commits())
        wait_until(lambda: len(job.commits()) > committed, RECOVERED_WITHIN_S, "a commit")
    with stage.client() as job:
        dead = job.status().incarnation
        kill_driver(stage.jobs)
        stage.order()
        wait_until(lambda: len(stage.api.runs(dag)) > len(before), HANGS_S, "a run of the recover DAG")
        (run,) = (run for run in stage.api.runs(dag) if run.id not in before)
        assert run.kind == "asset_triggered"
        stage.api.wait(dag, run.id, RECOVERED_WITHIN_S)
        done = stage.api.result(dag, run.id, "recover")
        last = job.last_commit()
        assert last is not None
        assert (done["recovered"], done["dead"], done["incarnation"]) == (True, dead, dead + 1)
        assert done["commit"] == last.id
        assert done["delivered_ms"] > done["delivered_at_death_ms"]
        assert job.status().state == "running"
    assert len(stage.api.runs(dag)) == len(before) + 1
