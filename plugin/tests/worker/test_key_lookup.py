"""The state of one key as of min time."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest
from core_rig import notice, read, reader, worker

import lowtide as lt
from lowtide.assignment.messages import Look, Looked, WorkerOrder
from lowtide.core.worker import WorkerCore
from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.flow.plan.compiler import compile_flow
from lowtide.service.workers import questions as questions_module
from lowtide.service.workers.crew import Crew
from lowtide.service.workers.questions import Questions
from lowtide.service.workers.register import Register, Worker
from lowtide.worker.key_lookup import KeyLookup
from lowtide_tracker import LocalTracker


def test_a_key_is_told_as_of_min_time_not_as_of_now() -> None:
    level_0, level_1 = reader(), worker(1, "optimistic")
    for frame in read(level_0, [(5, 1), (7, 2), (9, 4)]).frames:
        level_1.frame(frame)
    level_1.notice(notice(1, 8, 8))
    looking = KeyLookup(level_1)
    answer = looking.look(Look(1, "one", {"key": "a"}))
    assert json.loads(answer.state or "") == [{"key": {"key": "a"}, "state": 3}]
    assert answer == Looked(id=1, tick=8, state=answer.state)
    assert looking.look(Look(2, "one", {"key": "b"})) == Looked(id=2, tick=8)
    assert looking.look(Look(3, "two", {"number": "1"})) == Looked(id=3), "another level's"
    assert looking.look(Look(4, "one", {})).cause == 'the key of "one" is key; give each of them once'


def test_a_value_that_is_none_of_its_type_is_refused() -> None:
    looking = KeyLookup(worker(2, "optimistic"))
    assert looking.look(Look(1, "two", {"number": "7"})) == Looked(id=1, tick=0)
    assert "number='seven' is not of type int" in looking.look(Look(1, "two", {"number": "seven"})).cause


@dataclass(frozen=True)
class Level:
    tank: str
    height: float


@dataclass(frozen=True)
class Levels:
    newest: float
    all: tuple[float, ...] = ()


def levelled(levels: Levels, level: Level) -> tuple[Levels, Level]:
    return Levels(level.height, (*levels.all, level.height)), level


def test_a_float_that_is_no_number_is_shown_as_text_as_in_letters() -> None:
    """JSON has no NaN: null would be a float that is missing."""
    flow = lt.Flow("tanks")
    levels = flow.read("in", lt.kafka("in", lt.json(Level))).key_by("tank")
    levels.scan("levels", levelled, Levels(0.0)).write("out", lt.kafka("out", lt.avro(Level)))
    core = WorkerCore(compile_flow(flow, parallelism=1), 1, 0, tracker=LocalTracker(1, 1, start=0))
    core.restore({"levels": {0: [("a", Levels(math.nan, (math.inf, -math.inf, 1.5)))]}}, 0)
    answer = KeyLookup(core).look(Look(1, "levels", {"tank": "a"}))
    assert json.loads(answer.state or "", parse_constant=pytest.fail) == [
        {"key": {"tank": "a"}, "state": {"newest": "nan", "all": ["inf", "-inf", 1.5]}}
    ]


class Size(Enum):
    SMALL = "s"


@dataclass(frozen=True)
class Parcel:
    number: UUID
    size: Size
    way: Literal["air", "sea"]


@pytest.mark.parametrize("column", ["number", "size", "way"])
def test_a_value_that_only_its_kind_can_refuse_is_an_answer_too(column: str) -> None:
    flow = lt.Flow("parcels")
    parcels = flow.read("in", lt.kafka("in", lt.json(Parcel))).key_by(column)
    parcels.deduplicate("once", within=lt.hours(1)).write("out", lt.kafka("out", lt.json(Parcel)))
    core = WorkerCore(compile_flow(flow, parallelism=1), 1, 0, tracker=LocalTracker(1, 1, start=0))
    answer = KeyLookup(core).look(Look(1, "once", {column: "order-17"}))
    assert answer.cause.startswith(f"{column}='order-17' is not of type ")


def test_a_question_that_cannot_be_answered_is_answered_with_why(monkeypatch: pytest.MonkeyPatch) -> None:
    core = worker(2, "optimistic")
    looking = KeyLookup(core)
    monkeypatch.delattr(core, "program")
    assert 'could not look up a key of "two": AttributeError' in looking.look(Look(1, "two", {"number": "7"})).cause


class Asked:
    """Workers whose answers the test gives."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        register = Register(1)
        self.answers = {f"1/{place}": answer for place, answer in enumerate(answers)}
        for number, name in enumerate(self.answers):
            register.workers[name] = Worker(name, number, "0", 0)
        self.it = Questions(Crew(register, self.tell, len(answers)), slack_ms=2)

    def tell(self, worker: str, order: WorkerOrder) -> None:
        assert isinstance(order, Look)
        answer = self.answers[worker]
        if answer is not None:
            self.it.hear(worker, Looked(id=order.id, **answer))

    def ask(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(asyncio.run(self.it.ask("count", {"word": "to"})))
        return answer


def test_the_worker_that_has_the_key_answers_for_all() -> None:
    assert Asked({"tick": 9}, {"tick": 7, "state": "[1]"}, {}).ask() == {
        "step": "count", "key": {"word": "to"}, "min_time_ms": 14, "rows": [1],
    }  # fmt: skip
    assert Asked({"tick": 9}, {"tick": 7}).ask()["min_time_ms"] == 14, "all are at least so far"


def test_what_cannot_be_answered_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FlowError, match='no step "count" with state'):
        Asked({}, {}).ask()
    with pytest.raises(FlowError, match="say each"):
        Asked({"cause": "say each"}, {}).ask()
    monkeypatch.setattr(questions_module, "ANSWER_LIMIT_S", 0.1)
    with pytest.raises(ServiceUnavailable, match=r"1 worker did not answer.*1/1"):
        Asked({"tick": 3}, None).ask()
