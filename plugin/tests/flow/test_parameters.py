"""Parameters of a flow: what a start gives, what type it has, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lowtide as lt
from lowtide.cli.main import run
from lowtide.driver.record_types import PARAMETERS, changed_parameters
from lowtide.errors import FlowError
from lowtide.flow import parameters
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan

FLOW = """
from dataclasses import dataclass

import lowtide as lt


@dataclass(frozen=True)
class Order:
    amount: int


flow = lt.Flow("limited")
LIMIT = flow.parameter("limit", 100)


def capped(order: Order) -> Order:
    return Order(min(order.amount, LIMIT))


flow.read("in", lt.kafka("in", lt.json(Order))).map(capped).write("out", lt.kafka("out", lt.json(Order)))
if __name__ == "__main__":
    print(flow.run_locally({"in": [b'{"amount": 500}']})["out"][0].amount)
"""


@pytest.fixture(autouse=True)
def _given_to_no_other_test() -> Iterator[None]:
    yield
    parameters.give({})


@pytest.mark.parametrize(
    ("given", "default", "value"),
    [
        ({}, 5, 5),
        ({"limit": 7}, 5, 7),
        ({"limit": "7"}, 5, 7),
        ({"limit": "7"}, "5", "7"),
        ({"limit": "7"}, 5.0, 7.0),
        ({"limit": 7}, 5.0, 7.0),
        ({"limit": "true"}, False, True),
        ({"limit": False}, True, False),
    ],
)
def test_a_parameter_has_the_type_of_its_default(
    given: dict[str, parameters.Value], default: int, value: parameters.Value
) -> None:
    parameters.give(given)
    flow = lt.Flow("limited")
    found = flow.parameter("limit", default)
    assert (found, type(found)) == (value, type(value))
    assert flow.parameters == {"limit": value}


@pytest.mark.parametrize(
    ("given", "default"), [("many", 5), (7.5, 5), (True, 5), (1, True), (7, "5"), ("nan", 1.0), ("yes", True)]
)
def test_a_value_of_another_type_is_refused(given: parameters.Value, default: int) -> None:
    parameters.give({"limit": given})
    with pytest.raises(FlowError, match=f"parameter limit is {given!r}, which is not of type {type(default).__name__}"):
        lt.Flow("limited").parameter("limit", default)


def test_a_worker_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.flow.parameters.is_worker", lambda: True)
    with pytest.raises(FlowError, match="a function asks for a parameter"):
        lt.Flow("limited").parameter("limit", 5)


def test_a_plan_keeps_the_value_for_all_workers(tmp_path: Path) -> None:
    parameters.give({"limit": 7})
    (tmp_path / "limited.py").write_text(FLOW)
    plan = compile_flow(parameters_flow(tmp_path), parallelism=1)
    parameters.give({})
    assert load_plan(dump_plan(plan)).parameters == {"limit": 7}


def parameters_flow(folder: Path) -> lt.Flow:
    from lowtide.flow.plan.flow_file import load_flow

    flow = load_flow(str(folder / "limited.py"))
    assert isinstance(flow, lt.Flow)
    return flow


def test_a_parameter_that_the_flow_does_not_ask_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "limited.py").write_text(FLOW)
    assert run(["check", str(tmp_path / "limited.py"), "--explain", "--set", "job.parameters.limit=7"]) == 0
    assert "parameters: limit = 7\n" in capsys.readouterr().out
    assert run(["check", str(tmp_path / "limited.py"), "--set", "job.parameters.limt=7"]) == FlowError.exit_code
    said = capsys.readouterr().err
    assert 'flow "limited" has no parameter limt' in said
    assert "did you mean limit?" in said


@pytest.mark.parametrize("arguments", [["--set", "job.parameters.limit=7"], ["--conf=c.toml", "--detach"]])
def test_a_program_that_runs_itself_has_those_of_its_arguments(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "limited.py").write_text(FLOW)
    (tmp_path / "c.toml").write_text("[job.parameters]\nlimit = 7\n")
    command = [sys.executable, "limited.py", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "7\n"


def test_a_program_whose_module_asks_too_early_is_not_run() -> None:
    flow = lt.Flow("limited")
    flow.parameter("limit", 100)
    parameters.give({"limit": "100"})
    parameters.refuse_early(flow.parameters)
    parameters.give({"limit": "7"})
    with pytest.raises(FlowError, match="parameter limit is '7', and the flow asked for it before the conf was read"):
        parameters.refuse_early(flow.parameters)


def test_a_change_between_two_lives_is_said() -> None:
    flow = lt.Flow("limited")
    flow.parameter("limit", 5)
    flow.parameter("added", 5)
    flow.read("in", lt.kafka("in", lt.raw())).write("out", lt.kafka("out", lt.raw()))
    plan = compile_flow(flow, parallelism=1)
    assert [each.what for each in changed_parameters({PARAMETERS: {"limit": 7}}, plan)] == [
        "parameter limit is 5, but was 7"
    ]
    assert changed_parameters({PARAMETERS: dict(plan.parameters)}, plan) == []
    assert changed_parameters({"source": {}}, plan) == changed_parameters(None, plan) == []
