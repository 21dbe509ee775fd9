"""A look at a loop finds the worker, the step and the flow's function that it is in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from stage_rig import Kept, Order, Rig, Served, deployment, orders, packed

from lowtide import Flow, kafka
from lowtide import json as as_json
from lowtide.flow.plan.compiler import compile_flow
from lowtide.status.gauges import StepLooks
from lowtide.worker.busy import Busy, Doing, called, doing

LOOKS: list[Doing] = []


def look() -> None:
    LOOKS.append(doing(sys._getframe(1)))


def passed(order: Order) -> Order:
    look()
    return order


def counted(so_far: int, order: Order) -> tuple[int, Order]:
    """Calls others, and is called back by a library."""
    json.loads("{}", object_hook=lambda found: look())
    return so_far + 1, order


@pytest.fixture(name="rig")
def _rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)
    flow = Flow("busy")
    stream = flow.read("orders", kafka("orders", as_json(Order))).map(passed).key_by("user")
    stream.scan("count", counted, 0).write("out", kafka("out", as_json(Order), key="user"))
    LOOKS.clear()
    with Served() as served:
        yield Rig.of(deployment(plan=compile_flow(flow, parallelism=2, lanes=2, slack_ms=1)), served.address)


def seen(step: str) -> list[Doing]:
    found = [each for each in LOOKS if each.step == step]
    assert found
    return found


def test_the_worker_the_step_and_the_function_are_those_that_run(rig: Rig) -> None:
    rig.read(packed(orders(3), 1, tick=5), 1)
    assert {each.step for each in LOOKS} == {"passed", "count"}
    assert {each.worker for each in seen("passed")} == {"0/orders-1"}
    assert {each.worker for each in seen("count")} <= {"1/0", "1/1"}
    assert all(each.function.startswith(f"passed ({__file__}:") for each in seen("passed"))


def test_what_a_function_calls_and_what_calls_back_counts_as_the_function(rig: Rig) -> None:
    rig.read(packed(orders(3), 1, tick=5), 1)
    assert all(each.function.startswith(f"counted ({__file__}:") for each in seen("count"))


def test_outside_of_a_step_there_is_none() -> None:
    assert doing(sys._getframe()) == Doing()
    assert doing(None) == Doing()


def test_pythons_own_code_is_no_function_of_a_flow() -> None:
    found: list[str] = []

    def hook(_: Any) -> None:
        below = sys._getframe(1)
        assert below.f_code.co_filename.endswith("decoder.py")
        below = _cut(below)
        found.append(called(below))

    json.loads("{}", object_hook=hook)
    assert found == [""]


def _cut(frame: Any) -> Any:
    """The frame as if Lowtide had called it: its callers are left out."""

    class Cut:
        f_code, f_lineno, f_back = frame.f_code, frame.f_lineno, None

    return Cut


def test_looks_are_counted_by_step_with_the_last_function_that_was_seen(rig: Rig) -> None:
    rig.read(packed(orders(1), 1, tick=5), 1)
    [first] = seen("passed")
    busy = Busy()

    def as_found(found: Doing) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("lowtide.worker.busy.doing", lambda _: found)
            assert busy.look(None) == found

    for each in (first, Doing(), Doing("1/0", "count"), Doing("0/orders-1", "passed")):
        as_found(each)
    counts = busy.gauges()
    assert counts.looks == 4
    assert counts.steps == {
        "passed": StepLooks(looks=2, function=first.function, worker="0/orders-1"),
        "count": StepLooks(looks=1, function="", worker="1/0"),
    }
