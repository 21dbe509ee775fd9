"""Outages of the store or ZooKeeper during a snapshot: it is committed later, once."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.waiting import HANGS_S, wait_until

from lowtide.embedded.ports import port_owner

if TYPE_CHECKING:
    from embedded_airflow import DagRun

    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]

AWAY_S = 4.0
"""Less than the job's session lasts."""


def tries(stage: Stage, run: DagRun) -> dict[str, int]:
    return {task.id: task.tries for task in stage.api.tasks(run.dag, run.id)}


def wait_for(stage: Stage, run: DagRun, task: str, *states: str) -> None:
    """Wait until a task of a run is in one of these states."""

    def there() -> bool:
        found = {each.id: each.state for each in stage.api.tasks(run.dag, run.id)}
        assert found[task] not in {"failed", "upstream_failed"}, found
        return found[task] in states

    wait_until(there, HANGS_S, f"{task} to be {' or '.join(states)}")


def test_a_store_that_is_away_is_asked_again_and_the_snapshot_committed_once(stage: Stage) -> None:
    stage.submit()
    stage.order()
    folder = stage.folder / "snapshots"
    away = folder.with_name("away")
    with stage.client() as job, stage.snapshots():
        run = stage.api.trigger(stage.dag("snapshot"), {"name": "while the store is away"})
        wait_for(stage, run, "take", "success")
        folder.rename(away)
        try:
            wait_for(stage, run, "verify", "up_for_retry")
            assert "while the store is away" not in {commit.name for commit in job.commits()}
        finally:
            away.rename(folder)
        stage.api.wait(run.dag, run.id, HANGS_S)
        assert tries(stage, run)["verify"] == 2
        taken = stage.api.result(run.dag, run.id, "commit")["snapshot"]
        assert [commit.id for commit in job.commits() if commit.name == "while the store is away"] == [taken]


def test_a_zookeeper_that_stands_still_while_a_snapshot_is_committed_ends_nothing(stage: Stage) -> None:
    stage.submit()
    stage.order()
    owner = port_owner(int(stage.zookeeper.rpartition(":")[2]))
    assert owner is not None
    with stage.client() as job, stage.snapshots():
        life = job.status().incarnation
        run = stage.api.trigger(stage.dag("snapshot"), {"name": "while ZooKeeper stands still"})
        wait_for(stage, run, "verify", "success")
        os.kill(owner.pid, signal.SIGSTOP)
        time.sleep(AWAY_S)
        os.kill(owner.pid, signal.SIGCONT)
        stage.api.wait(run.dag, run.id, HANGS_S)
        named = [commit.id for commit in job.commits() if commit.name == "while ZooKeeper stands still"]
        assert named == [stage.api.result(run.dag, run.id, "commit")["snapshot"]]
        assert (job.status().state, job.status().incarnation) == ("running", life)
