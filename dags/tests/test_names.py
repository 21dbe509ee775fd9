"""The names of operators, sensors, triggers and their arguments: Airflow's conventions, and no former name."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

COMMON = {"lowtide_conn_id", "deferrable", "poll_interval", "timeout"}
FORMER = (
    ("connection", "lowtide_conn_id"),
    ("poll_s", "poll_interval"),
    ("limit_s", "timeout"),
    ("most", "max_deaths"),
    ("if_untold", "if_at_least_once"),
)


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


@pytest.mark.parametrize(
    "name", ["RunFlow", "RecoverFlow", "StopFlow", "PreviewFlow", "TakeSnapshot", "CommitSnapshot"]
)
def test_a_former_operator_is_refused_with_its_name_now(name: str) -> None:
    from lowtide_airflow import operators

    with pytest.raises(ImportError, match=f"{name} is now called {name}Operator"):
        exec(f"from lowtide_airflow.operators import {name}")
    with pytest.raises(AttributeError, match="has no attribute 'RunJob'"):
        operators.__getattr__("RunJob")


@pytest.mark.parametrize(("former", "now"), FORMER)
def test_a_former_argument_is_refused_with_its_name_now(former: str, now: str) -> None:
    from lowtide_airflow.operators import RecoverFlowOperator
    from lowtide_airflow.sensors import DeliveredTimeSensor

    refused = f"the argument '{former}' is now called '{now}'"
    given: dict[str, Any] = {former: 1}
    with pytest.raises(TypeError, match=refused):
        RecoverFlowOperator(task_id="recover", job="orders", flow="flow.py", **given)
    with pytest.raises(TypeError, match=refused):
        DeliveredTimeSensor(task_id="wait", job="orders", at="2026-01-01", **given)


def test_triggers_and_the_hook_refuse_former_arguments_too() -> None:
    from lowtide_airflow.hook import LowtideHook
    from lowtide_airflow.triggers import JobDiedTrigger, JobEndedTrigger

    given: dict[str, Any] = {"connection": "there"}
    late: dict[str, Any] = {"until": 1.0}
    for kind in (JobDiedTrigger, JobEndedTrigger):
        with pytest.raises(TypeError, match=f"{kind.__name__}: the argument 'connection' is now called"):
            kind(job="orders", **given)
    with pytest.raises(TypeError, match="'until' is now called 'end_time'"):
        JobEndedTrigger(job="orders", lowtide_conn_id="there", **late)
    with pytest.raises(TypeError, match="LowtideHook: the argument 'connection'"):
        LowtideHook(**given)
