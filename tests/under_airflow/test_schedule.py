"""Snapshots on schedule: one after the other, each of them committed."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.waiting import wait_until

from .conftest import SNAPSHOT_EVERY_S

if TYPE_CHECKING:
    from embedded_airflow import DagRun

    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]

RUNS = 10
WITHIN_S = RUNS * SNAPSHOT_EVERY_S * 2


def test_ten_scheduled_snapshots_in_a_row_do_not_overlap_and_none_is_lost(stage: Stage) -> None:
    stage.submit()
    stage.order()
    before = stage.ended_snapshot_runs()

    def scheduled() -> list[DagRun]:
        return [run for run in stage.snapshot_runs(before) if run.kind == "scheduled"]

    with stage.client() as job:
        committed = len(job.commits())
        with stage.snapshots():
            wait_until(lambda: sum(run.over for run in scheduled()) >= RUNS, WITHIN_S, f"{RUNS} runs that are over")
        runs = scheduled()
        assert [run.state for run in runs] == ["success"] * len(runs)
        for earlier, later in pairwise(runs):
            assert earlier.ended is not None
            assert later.began is not None
            assert earlier.ended <= later.began
            assert earlier.logical_date is not None
            assert later.logical_date is not None
            # One that was late moves those after it.
            assert later.logical_date - earlier.logical_date >= timedelta(seconds=SNAPSHOT_EVERY_S)
        assert len(job.commits()) == committed + len(runs)
