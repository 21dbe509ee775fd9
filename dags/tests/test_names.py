"""The names of operators, sensors, triggers and their arguments: Airflow's conventions."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

COMMON = {"lowtide_conn_id", "deferrable", "poll_interval", "timeout"}


def operators() -> list[Any]:
    from lowtide_airflow import operators

    return [getattr(operators, name) for name in operators.__all__]


def arguments(kind: Any) -> set[str]:
    """All arguments of a class: those of its constructor, and those that it passes on."""
    kinds = [
        each for each in kind.__mro__ if each.__module__.startswith("lowtide_airflow") and "__init__" in vars(each)
    ]
    return {name for each in kinds for name in inspect.signature(each.__init__).parameters}


def test_every_operator_is_named_and_takes_what_airflows_own_do() -> None:
    from lowtide_airflow.sensors import DeliveredTimeSensor, LabelEndedSensor

    assert len(operators()) == 8
    for kind in operators():
        assert kind.__name__.endswith("Operator")
        assert arguments(kind) >= COMMON, kind
    assert arguments(DeliveredTimeSensor) >= COMMON
    assert arguments(LabelEndedSensor) >= COMMON


def test_every_trigger_takes_the_connection_and_the_interval() -> None:
    from lowtide_airflow import triggers

    for name in triggers.__all__:
        assert arguments(getattr(triggers, name)) >= {"lowtide_conn_id", "poll_interval"}, name


def test_waiting_in_the_triggerer_is_airflows_setting_unless_it_is_given() -> None:
    from airflow.configuration import conf

    from lowtide_airflow.operators import StopFlowOperator

    default = conf.getboolean("operators", "default_deferrable")
    assert StopFlowOperator(task_id="stop", job="orders").deferrable is default
    assert StopFlowOperator(task_id="stop", job="orders", deferrable=True).deferrable is True
