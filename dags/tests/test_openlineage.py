"""OpenLineage's provider reads datasets off an operator's assets, where it is installed: see `make test-airflow-at`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def test_the_assets_of_a_task_are_openlineages_datasets() -> None:
    extractors = pytest.importorskip(
        "airflow.providers.openlineage.extractors.manager", reason="OpenLineage's provider is not installed"
    )
    from airflow.sdk import Asset
    from airflow.utils.state import TaskInstanceState
    from openlineage.client.event_v2 import Dataset

    from lowtide_airflow.asset_uris import uri_of
    from lowtide_airflow.operators import CommitSnapshotOperator
    from lowtide_airflow.sensors import DeliveredTimeSensor

    lake = Asset(name="lake", uri=uri_of("orders", "files", "to lake"))
    commits = Asset(name="commits", uri=uri_of("orders", "commits"))
    report = Dataset(namespace="postgres://reports", name="public.orders")
    tasks = [
        CommitSnapshotOperator(
            task_id="commit", job="orders", snapshot="000003-0007", inlets=[lake], outlets=[commits, report]
        ),
        DeliveredTimeSensor(task_id="delivered", job="orders", at=0, inlets=[lake], outlets=[commits, report]),
    ]
    # It reads nothing else of these two than what it logs.
    run: Any = SimpleNamespace(run_id="run")
    for task in tasks:
        instance: Any = SimpleNamespace(task=task, dag_id="dag", task_id=task.task_id, try_number=1, map_index=-1)
        for state in (TaskInstanceState.RUNNING, TaskInstanceState.SUCCESS, TaskInstanceState.FAILED):
            found = extractors.ExtractorManager().extract_metadata(
                dagrun=run, task=task, task_instance_state=state, task_instance=instance
            )
            read, written = ([(each.namespace, each.name) for each in side] for side in (found.inputs, found.outputs))
            assert read == [("lowtide://orders", "files/to lake")]
            assert written == [("lowtide://orders", "commits"), ("postgres://reports", "public.orders")]
