"""Complete hours trigger a batch DAG; the test publishes the job's delivered time in ZooKeeper."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import HANGS_S, wait_until

from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.job.store import JobStore

from .conftest import HOURS

if TYPE_CHECKING:
    from embedded_airflow import DagRun

    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

SLACK_MS = 10
HOUR_MS = 3_600_000
BEGINS_MS = 495_000 * HOUR_MS
STEP_S = 3.0
STEPS = 30


@pytest.fixture(name="driver")
def _driver(stage: Stage) -> Iterator[JobStore]:
    """The job's place, as its driver would hold it."""
    (stage.folder / "snapshots").mkdir(exist_ok=True)
    with JobStore(stage.zookeeper, HOURS) as driver:
        driver.freeze(JobRecord(HOURS, SLACK_MS, 128, 1, "log", 1, ("orders=orders",)))
        driver.take_lease("a test", 10.0, lambda _: None)
        yield driver


def test_each_hour_that_is_delivered_is_announced_and_starts_the_batch_dag_once(stage: Stage, driver: JobStore) -> None:
    life = driver.raise_incarnation()
    complete, report = f"lowtide_hour_complete__{HOURS}", f"lowtide_hourly_report__{HOURS}"
    for dag in (complete, report):
        stage.api.unpause(dag)
        stage.api.read_again(dag)

    def over(dag: str) -> list[DagRun]:
        return [run for run in stage.api.runs(dag) if run.over]

    # The watcher begins with the hour that it finds complete; when that is, is Airflow's matter.
    hour = 0
    while not stage.api.runs(complete) and hour < STEPS:
        hour += 1
        driver.publish(life, (BEGINS_MS + hour * HOUR_MS) // SLACK_MS)
        time.sleep(STEP_S)
    end_ms = BEGINS_MS + hour * HOUR_MS
    # Within the next hour: nothing more is complete.
    driver.publish(life, (end_ms + HOUR_MS // 2) // SLACK_MS)

    def announced() -> list[dict[str, str]]:
        return [hour for run in over(complete) for hour in _result(stage, complete, run, "find")]

    def reported() -> list[str]:
        return [hour["to"] for run in over(report) for hour in _result(stage, report, run, "report")]

    def is_last(ends: list[str]) -> bool:
        return bool(ends) and datetime.fromisoformat(ends[-1]).timestamp() * 1000 == end_ms

    wait_until(lambda: is_last(sorted(reported())), HANGS_S, "the report of the last hour")
    hours = sorted(announced(), key=lambda hour: hour["from"])
    assert [hour["to"] for hour in hours] == sorted(reported()), "each once"
    for before, after in pairwise(hours):
        assert before["to"] == after["from"]
    for each in hours:
        assert datetime.fromisoformat(each["to"]) - datetime.fromisoformat(each["from"]) == timedelta(hours=1)
    assert {run.state for dag in (complete, report) for run in over(dag)} == {"success"}
    assert {run.kind for dag in (complete, report) for run in over(dag)} == {"asset_triggered"}


def _result(stage: Stage, dag: str, run: DagRun, task: str) -> list[dict[str, str]]:
    found: Any = stage.api.result(dag, run.id, task)
    said: list[dict[str, str]] = json.loads(found) if isinstance(found, str) else found
    return said
