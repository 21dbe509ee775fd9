"""Delivered time of a job that was drained: of which sinks it is, and when nothing is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import lowtide as lt
from lowtide.conf import Conf
from lowtide.core.fronts.end import end_tick
from lowtide.driver.carriages import staged_settings
from lowtide.driver.drained import drained_tick
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan


@dataclass(frozen=True)
class Order:
    number: int


SLACK_MS = 10


def plan_of(folder: Path, sinks: str, *, letters: bool = False) -> Plan:
    """A flow with a sink of files for each small letter, and one of Kafka for each capital."""
    flow = lt.Flow("drained", dead_letters=lt.kafka("letters", lt.raw()) if letters else None)
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
    for name in sinks:
        files = lt.files(f"{folder}/{name}/{{tick:%Y-%m-%d}}/", lt.json_lines(Order))
        orders.write(name, files if name.islower() else lt.kafka(name, lt.json(Order)))
    return compile_flow(flow, parallelism=1, slack_ms=SLACK_MS)


@pytest.mark.parametrize(
    ("sinks", "letters", "visible", "committed", "tick"),
    [
        ("ab", False, [70, 50], None, 5),
        ("ab", False, [70, 50], 3, 5),  # All is in the marks.
        ("ab", False, [70, None], 3, None),
        ("aB", False, [70], 3, 3),
        ("aB", False, [70], 9, 7),
        ("aB", False, [70], None, None),
        ("a", True, [70], 3, 3),
    ],
)
def test_the_least_of_what_is_known_of_each_sink(
    tmp_path: Path, sinks: str, letters: bool, visible: list[int | None], committed: int | None, tick: int | None
) -> None:
    plan = plan_of(tmp_path, sinks, letters=letters)
    staged = staged_settings(plan, Conf(), "id", 0)
    assert drained_tick(plan, dict(zip(staged, visible, strict=True)), committed) == tick


def test_what_has_ended_holds_nothing_back_and_is_not_published_itself(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "abC")
    staged = staged_settings(plan, Conf(), "id", 0)
    ended = [each.last_mark * SLACK_MS for each in staged]
    assert drained_tick(plan, dict(zip(staged, [ended[0], 50], strict=True)), 7) == 5
    assert drained_tick(plan, dict(zip(staged, ended, strict=True)), 7) == 7
    assert drained_tick(plan, dict(zip(staged, ended, strict=True)), end_tick(SLACK_MS)) is None
    plan = plan_of(tmp_path, "ab")
    staged = staged_settings(plan, Conf(), "id", 0)
    assert drained_tick(plan, {each: each.last_mark * SLACK_MS for each in staged}, None) is None
