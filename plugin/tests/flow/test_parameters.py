"""Parameters of a flow: what a start gives, what type it has, and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lowtide as lt
from lowtide.cli.main import run
from lowtide.driver.record_types import PARAMETERS, changed_parameters
from lowtide.errors import FlowError
from lowtide.flow import parameters
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan
from lowtide_snapshots.zookeeper.node_values import to_bytes

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

CALLED = """
import sys
from pathlib import Path
from lowtide.flow.plan.plan_pickle import load_plan

(capped,) = [each.step.function for each in load_plan(Path(sys.argv[1]).read_bytes()).vertices if each.name == "capped"]
print(capped(capped.__globals__["Order"](500)))
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
    ("given", "default"),
    [("many", 5), (7.5, 5), (True, 5), (1, True), (7, "5"), ("nan", 1.0), (math.inf, 1.0), ("yes", True)],
)
def test_a_value_of_another_type_is_refused(given: parameters.Value, default: int) -> None:
    parameters.give({"limit": given})
    with pytest.raises(FlowError, match=f"parameter limit is {given!r}, which is not of type {type(default).__name__}"):
        lt.Flow("limited").parameter("limit", default)


HUGE = 10**400
"""A number that TOML can hold, and a float cannot."""


def test_a_huge_number_is_no_float() -> None:
    parameters.give({"limit": HUGE})
    with pytest.raises(FlowError, match=r"parameter limit is 1000+\.\.\.0+, which is not of type float"):
        lt.Flow("limited").parameter("limit", 1.0)
    assert lt.Flow("limited").parameter("limit", 1) == HUGE


@pytest.mark.parametrize(
    "default",
    [math.inf, -math.inf, math.nan, pytest.param(10**5000, id="huge"), "x" * parameters.VALUE_LIMIT_BYTES],
)
def test_a_default_that_could_not_be_kept_is_refused(default: Any) -> None:
    with pytest.raises(FlowError, match=r"(?s)the default of parameter limit is .*finite, and has at most 16384 bytes"):
        lt.Flow("limited").parameter("limit", default)


def test_what_a_node_of_zookeeper_could_not_take_is_refused() -> None:
    flow = lt.Flow("limited")
    text = "x" * (parameters.VALUE_LIMIT_BYTES - 2)
    assert flow.parameter("text", text) == text
    parameters.give({"more": f"{text}y"})
    with pytest.raises(FlowError, match="parameter more has more than 16384 bytes as JSON"):
        flow.parameter("more", "")
    for number in range(14):
        flow.parameter(f"text{number}", text)
    with pytest.raises(FlowError, match="the 16 parameters of the flow have more than 262144 bytes as JSON"):
        flow.parameter("text14", text)
    assert len(to_bytes(flow.parameters)) <= parameters.ROOM_BYTES


@pytest.mark.parametrize(("default", "said"), [(6, "6"), (5.0, "5.0"), (True, "True"), ("5", "'5'")])
def test_a_name_that_is_asked_for_twice_has_one_default(default: Any, said: str) -> None:
    flow = lt.Flow("limited")
    assert flow.parameter("limit", 5) == flow.parameter("limit", 5) == 5
    with pytest.raises(FlowError, match=f"parameter limit has the default {said} here, and 5 at .*test_parameters.py"):
        flow.parameter("limit", default)
    assert flow.parameters == {"limit": 5}


def passing(flow: lt.Flow) -> lt.Flow:
    flow.read("in", lt.kafka("in", lt.raw())).write("out", lt.kafka("out", lt.raw()))
    return flow


@pytest.mark.parametrize("dead_letters", [None, lt.kafka("dead", lt.raw())])
def test_a_function_that_asks_is_refused_where_it_is_called_for_a_test(dead_letters: Any) -> None:
    """Not in a worker alone, where nobody looks before the job runs."""
    flow = lt.Flow("asking", dead_letters=dead_letters)

    def asks(record: lt.Raw) -> lt.Raw:
        return record if flow.parameter("times", 2) else lt.Raw(None, None)

    flow.read("in", lt.kafka("in", lt.raw())).map(asks).write("out", lt.kafka("out", lt.raw()))
    with pytest.raises(FlowError, match="a function asks for a parameter, which workers are not given"):
        flow.run_locally({"in": [b"x"]})
    assert flow.run_locally()["out"] == []
    # A test may go on writing the flow down.
    assert flow.parameter("times", 3) == 3


def test_a_function_that_asks_is_a_fault_of_the_flow_for_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = FLOW.replace("order.amount, LIMIT", 'order.amount, flow.parameter("limit", 100)')
    (tmp_path / "limited.py").write_text(asks)
    assert run(["check", str(tmp_path / "limited.py")]) == FlowError.exit_code
    assert "a function asks for a parameter, which workers are not given" in capsys.readouterr().err


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
    (tmp_path / "plan").write_bytes(dump_plan(plan))
    command = [sys.executable, "-c", CALLED, str(tmp_path / "plan")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    assert done.stdout == "Order(amount=7)\n", done.stderr


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


def test_a_conf_file_may_have_parameters_of_other_flows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "limited.py").write_text(FLOW)
    (tmp_path / "shared.toml").write_text("[job.parameters]\nlimt = 7\n")
    assert run(["check", str(tmp_path / "limited.py"), "--conf", str(tmp_path / "shared.toml")]) == 0
    note = "[job.parameters] has limt, for which the flow does not ask; did you mean limit?"
    assert f'note: "limited": {note}\n' in capsys.readouterr().out
    parameters.give({"limt": 7, "other": 7}, ["other"])
    assert parameters.unasked({"limit": 100}) == [note]


def test_a_start_says_what_its_conf_file_has_for_others(tmp_path: Path) -> None:
    (tmp_path / "limited.py").write_text(f"{FLOW}    lt.main(flow)\n")
    (tmp_path / "c.toml").write_text('[job.parameters]\nother = 7\n[kafka]\nbootstrap_servers = "127.0.0.1:9"\n')
    command = [sys.executable, "limited.py", "--conf", "c.toml", "--set", "kafka.reach_limit_ms=100"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert "note: [job.parameters] has other, for which the flow does not ask\n" in done.stderr
    assert "no parameter" not in done.stderr
    command += ["--set", "job.parameters.other=7"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert 'flow "limited" has no parameter other' in done.stderr


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
    flow.parameter("added", 1)
    plan = compile_flow(passing(flow), parallelism=1)
    assert [each.what for each in changed_parameters({PARAMETERS: {"limit": 7}}, plan)] == [
        "parameter limit is 5, but was 7"
    ]
    assert changed_parameters({PARAMETERS: dict(plan.parameters)}, plan) == []
    assert [each.what for each in changed_parameters({PARAMETERS: {"limit": 5.0, "added": True}}, plan)] == [
        "parameter limit is 5, but was 5.0",
        "parameter added is 1, but was True",
    ]
    assert changed_parameters({"source": {}}, plan) == changed_parameters(None, plan) == []
