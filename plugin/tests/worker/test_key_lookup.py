"""The state of one key as of min time."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from core_rig import Event, notice, read, reader, worker
from programs import source_rows

import lowtide as lt
from lowtide.assignment.messages import Look, LookAround, Looked, WorkerOrder
from lowtide.core.effects import Effects
from lowtide.core.operators.order.order import Position
from lowtide.core.worker import WorkerCore
from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.run import Message
from lowtide.service.workers import asking
from lowtide.service.workers.crew import Crew
from lowtide.service.workers.questions import Questions
from lowtide.service.workers.register import Register, Worker
from lowtide.worker.key_lookup import KeyLookup
from lowtide_tracker import LocalTracker


def test_a_key_is_reported_as_of_min_time_not_as_of_now() -> None:
    level_0, level_1 = reader(), worker(1, "optimistic")
    for frame in read(level_0, [(5, 1), (7, 2), (9, 4)]).frames:
        level_1.frame(frame)
    level_1.notice(notice(1, 8, 8))
    looking = KeyLookup(level_1)
    answer = looking.look(Look(1, "one", [{"key": "c"}, {"key": "a"}]))
    assert rows_of(answer) == {1: [{"key": {"key": "a"}, "state": 3}]}
    assert answer == Looked(id=1, tick=8, rows=answer.rows)
    assert looking.look(Look(1, "one", [{"": "a"}])).rows == {0: answer.rows[1]}, "it has one column"
    assert looking.look(Look(2, "one", [{"key": "b"}])) == Looked(id=2, tick=8)
    assert looking.look(Look(3, "two", [{"number": "1"}])) == Looked(id=3), "another level's"
    assert looking.look(Look(4, "one", [{}])).cause == 'the key of "one" is key; give each of them once'


def test_a_value_that_is_none_of_its_type_is_refused() -> None:
    looking = KeyLookup(worker(2, "optimistic"))
    assert looking.look(Look(1, "two", [{"number": "7"}])) == Looked(id=1, tick=0)
    assert "number='seven' is not of type int" in looking.look(Look(1, "two", [{"number": "seven"}])).cause


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
    answer = KeyLookup(core).look(Look(1, "levels", [{"tank": "a"}]))
    assert json.loads(answer.rows[0], parse_constant=pytest.fail) == [
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
    answer = KeyLookup(core).look(Look(1, "once", [{column: "order-17"}]))
    assert answer.cause.startswith(f"{column}='order-17' is not of type ")


def test_a_question_that_cannot_be_answered_is_answered_with_why(monkeypatch: pytest.MonkeyPatch) -> None:
    core = worker(2, "optimistic")
    looking = KeyLookup(core)
    monkeypatch.delattr(core, "program")
    assert 'could not look up keys of "two": AttributeError' in looking.look(Look(1, "two", [{"number": "7"}])).cause


def rows_of(answer: Looked) -> dict[int, Any]:
    return {place: json.loads(rows) for place, rows in answer.rows.items()}


def keyed(core: WorkerCore, count: int) -> Effects:
    """Records of ten keys, one a tick."""
    values = [msgspec.json.encode(Event("abcdefghij"[number % 10], number)) for number in range(count)]
    messages = [Message(Position(0, number), 5 + number, None, value) for number, value in enumerate(values)]
    return core.rows(source_rows(messages), 0)


def test_the_first_keys_of_a_step_are_those_of_a_unit_or_of_any() -> None:
    level_0, level_1 = reader(), worker(1, "optimistic")
    for frame in keyed(level_0, 55).frames:
        level_1.frame(frame)
    level_1.notice(notice(1, 50, 50))
    looking = KeyLookup(level_1)
    captured = level_1.program.capture(50)["one"]
    everything = {key: state for keys in captured.values() for key, state in keys}
    assert len(everything) == 10

    def found(unit: int | None, limit: int) -> dict[str, int]:
        answer = looking.look(LookAround(1, "one", unit, limit))
        return {rows[0]["key"]["key"]: rows[0]["state"] for rows in rows_of(answer).values()}

    assert found(None, 100) == everything
    assert {unit: found(unit, 100) for unit in captured} == {unit: dict(keys) for unit, keys in captured.items()}
    assert len(found(None, 3)) == 3
    assert everything.items() >= found(None, 3).items()
    assert looking.look(LookAround(1, "one", None, 9)).more
    assert not looking.look(LookAround(1, "one", None, 10)).more


class Asked:
    """Workers whose answers the test gives."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        register = Register(1)
        self.answers = {f"1/{place}": answer for place, answer in enumerate(answers)}
        for number, name in enumerate(self.answers):
            register.workers[name] = Worker(name, number, "0", 0)
        self.it = Questions(Crew(register, self.send, len(answers)), slack_ms=2)

    def send(self, worker: str, order: WorkerOrder) -> None:
        assert isinstance(order, Look | LookAround)
        answer = self.answers[worker]
        if answer is not None:
            self.it.hear(worker, Looked(id=order.id, **answer))

    def ask(self) -> list[dict[str, Any]]:
        found = asyncio.run(self.it.look("count", [{"word": "to"}, {"word": "be"}]))
        answer: list[dict[str, Any]] = json.loads(msgspec.json.encode(found))
        return answer


def test_the_worker_that_has_a_key_answers_for_it() -> None:
    assert Asked({"tick": 9, "rows": {1: "[2]"}}, {"tick": 7, "rows": {0: "[1]"}}, {}).ask() == [
        {"key": {"word": "to"}, "min_time_ms": 14, "rows": [1]},
        {"key": {"word": "be"}, "min_time_ms": 18, "rows": [2]},
    ]
    nothing = Asked({"tick": 9}, {"tick": 7}).ask()
    assert [each["min_time_ms"] for each in nothing] == [14, 14], "all are at least so far"


def test_a_broadcast_that_all_have_is_that_of_the_earliest() -> None:
    (first, _) = Asked({"tick": 7, "rows": {0: "[1]"}}, {"tick": 9, "rows": {0: "[2]"}}).ask()
    assert (first["min_time_ms"], first["rows"]) == (14, [1])


def test_the_first_keys_come_from_all_workers() -> None:
    asked = Asked({"tick": 9, "rows": {0: "[1]", 1: "[2]"}}, {"tick": 7, "rows": {0: "[3]"}, "more": True}, {})
    found = json.loads(msgspec.json.encode(asyncio.run(asked.it.look_around("count", None, 3))))
    assert found == {"min_time_ms": 14, "more": True, "keys": [{"rows": [1]}, {"rows": [2]}, {"rows": [3]}]}
    asked = Asked({"tick": 9, "rows": {0: "[1]", 1: "[2]"}})
    assert not asyncio.run(asked.it.look_around("count", None, 2))["more"]
    assert asyncio.run(asked.it.look_around("count", None, 1))["more"]


def test_what_cannot_be_answered_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FlowError, match='no step "count" with state'):
        Asked({}, {}).ask()
    with pytest.raises(FlowError, match="say each"):
        Asked({"cause": "say each"}, {}).ask()
    monkeypatch.setattr(asking, "ANSWER_LIMIT_S", 0.1)
    with pytest.raises(ServiceUnavailable, match=r"1 worker did not answer.*1/1"):
        Asked({"tick": 3}, None).ask()
