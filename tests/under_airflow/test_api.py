"""Airflow's own API, with the rights of each user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from embedded_airflow import AirflowApi, AirflowRefused
from embedded_airflow.airflow import PARTS

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]


def test_a_viewer_sees_the_dags_and_may_not_run_them(stage: Stage) -> None:
    viewer, dag = stage.airflow.api("viewer"), stage.dag("submit")
    assert dag in {each.id for each in viewer.dags()}
    for forbidden in (lambda: viewer.trigger(dag), lambda: viewer.unpause(dag)):
        with pytest.raises(AirflowRefused) as refused:
            forbidden()
        assert refused.value.status == 403
        assert "viewer" in str(refused.value)
    assert viewer.runs(dag) == stage.api.runs(dag)


def test_who_has_no_password_sees_nothing(stage: Stage) -> None:
    with AirflowApi(stage.airflow.url, "admin", "a guess") as stranger, pytest.raises(AirflowRefused) as refused:
        stranger.dags()
    assert refused.value.status == 401


def test_every_dag_file_can_be_read(stage: Stage) -> None:
    assert stage.api.import_errors() == {}
    assert not [dag.id for dag in stage.api.dags() if dag.has_errors]


def test_each_process_has_a_log_and_lives(stage: Stage) -> None:
    for name in PARTS:
        part = stage.airflow.part(name)
        assert part.running
        assert part.processes()
        assert part.log.stat().st_size > 0
