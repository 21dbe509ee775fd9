"""The questions of a host: so many bytes at a time are given to the process that asks, and each is answered once."""

from __future__ import annotations

import asyncio
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from stage_rig import deployment

import lowtide as lt
from lowtide.assignment.deployment import Deployment
from lowtide.calls.setting import dump_settings, settings_of
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.questions import Answered, Question
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.schema.fields import decoder_of
from lowtide.flow.steps.steps import Ask
from lowtide.worker.asking import TOGETHER, Asking, asking_of
from lowtide.worker.stage import LevelStage

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # As of a program's own file.
PATIENCE_S = 60.0
SIZE = 1_000
LIMIT = 20 * SIZE


@dataclass(frozen=True)
class Item:
    text: str


@dataclass(frozen=True)
class Asked:
    text: str
    open: int


def deployed(gate: Path, **settings: Any) -> Deployment:
    """A flow that asks twice about each item, once the gate is there; an answer says how many were open with it."""

    async def ask(item: Item, opened: list[str]) -> Asked:
        opened.append(item.text)
        (gate.parent / "begun").write_text(str(len(opened)))
        while not gate.exists():
            await asyncio.sleep(0.01)
        count = len(opened)
        await asyncio.sleep(0.001)
        opened.remove(item.text)
        return Asked(item.text[:8], count)

    flow = lt.Flow("asking")
    items = flow.read("items", lt.kafka("items", lt.json(Item)))
    for name in ("one", "two"):
        asked = items.call(name, ask, timeout=lt.minutes(5), concurrency=500, resource=list)
        asked.write(f"{name}s", lt.kafka(f"{name}s", lt.json(Asked), key="text"))
    plan = compile_flow(flow, parallelism=1, lanes=1, slack_ms=1)
    calls = dump_settings(settings_of(plan))
    return deployment(plan=plan, calls=calls, job_id="a job", **settings)


@contextmanager
def asking(made: Deployment) -> Iterator[Asking]:
    made_ = asking_of(made)
    assert made_ is not None
    try:
        yield made_
    finally:
        made_.close(5.0)


def place(number: int) -> bytes:
    return OrderKey(5, 0, number).packed()


def turns(asking: Asking, enough: Callable[[list[tuple[int, Answered]]], bool]) -> list[tuple[int, Answered]]:
    """Let a host's loop turn until it has been answered enough."""
    found: list[tuple[int, Answered]] = []
    until = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < until, f"{len(found)} answers have come"
        asking.send()
        select.select([asking.fileno()], [], [], 0.05)
        found += [(ask, each) for _, ask, answers in asking.answered() for each in answers]
    return found


def asks(made: Deployment) -> list[int]:
    return [ask.id for ask in made.plan.those(Ask)]


def opened(made: Deployment, found: list[tuple[int, Answered]]) -> list[int]:
    """How many questions of its step were open when each was answered."""
    decode = decoder_of(next(iter(made.plan.those(Ask))).gives)
    assert [each.answer.failure for _, each in found if each.answer.failure] == []
    return [decode(each.answer.value)[0].open for _, each in found]


@pytest.fixture(name="stage")
def _stage() -> LevelStage:
    return object()  # type: ignore[return-value]


def test_no_more_bytes_are_asked_about_at_once_than_the_limit(tmp_path: Path, stage: LevelStage) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    made = deployed(gate, max_call_bytes=LIMIT)
    with asking(made) as host:
        one, two = asks(made)
        rows = [Item(f"{number:08}".ljust(SIZE, "x")) for number in range(200)]
        host.ask(stage, [Question(one, place(number), row) for number, row in enumerate(rows)])
        host.ask(stage, [Question(two, place(number), row) for number, row in enumerate(rows)])
        turns(host, lambda _: begun.exists() and begun.read_text() == "32")
        assert [gauges.open for gauges in host._callers.gauges()] == [2 * TOGETHER, 0], "two portions fill it"
        gate.touch()
        found = turns(host, lambda found: len(found) >= 400)
    assert sorted((ask, each.at) for ask, each in found) == sorted(
        (ask, place(number)) for ask in (one, two) for number in range(200)
    )
    assert TOGETHER < max(opened(made, found)) < LIMIT // SIZE + TOGETHER


def test_records_larger_than_the_limit_are_asked_about_a_few_at_a_time(tmp_path: Path, stage: LevelStage) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    made = deployed(gate, max_call_bytes=LIMIT)
    with asking(made) as host:
        (ask, _) = asks(made)
        rows = [Item(f"{number:08}".ljust(2 * LIMIT, "x")) for number in range(5 * TOGETHER)]
        host.ask(stage, [Question(ask, place(number), row) for number, row in enumerate(rows)])
        found = turns(host, lambda found: len(found) >= len(rows))
    assert max(opened(made, found)) <= TOGETHER


def test_what_the_limit_holds_back_is_asked_about_again_after_the_process_died(
    tmp_path: Path, stage: LevelStage
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    made = deployed(gate, max_call_bytes=LIMIT)
    with asking(made) as host:
        (ask, _) = asks(made)
        rows = [Item(f"{number:08}".ljust(SIZE, "x")) for number in range(50)]
        host.ask(stage, [Question(ask, place(number), row) for number, row in enumerate(rows)])
        turns(host, lambda _: begun.exists() and begun.read_text() == "32")
        host._callers._process.kill()
        gate.touch()
        found = turns(host, lambda found: len(found) >= 50)
        assert host.restarts == 1
    assert sorted(each.at for _, each in found) == [place(number) for number in range(50)]
