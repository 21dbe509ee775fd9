"""The state of one key as of min time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from core_rig import notice, read, reader, worker

from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.service.workers import questions as questions_module
from lowtide.service.workers.questions import Questions
from lowtide.worker.looking import Looking


def test_a_key_is_told_as_of_min_time_not_as_of_now() -> None:
    level_0, level_1 = reader(), worker(1, "optimistic")
    for frame in read(level_0, [(5, 1), (7, 2), (9, 4)]).frames:
        level_1.frame(frame)
    level_1.notice(notice(1, 8, 8))
    looking = Looking(level_1)
    answer = looking.look({"id": 1, "step": "one", "key": {"key": "a"}})
    assert json.loads(answer.pop("state")) == [{"key": {"key": "a"}, "state": 3}]
    assert answer == {"id": 1, "tick": 8}
    assert looking.look({"id": 2, "step": "one", "key": {"key": "b"}}) == {"id": 2, "tick": 8}
    assert looking.look({"id": 3, "step": "two", "key": {"number": "1"}}) == {"id": 3}, "another level's"
    refused = looking.look({"id": 4, "step": "one", "key": {}})["refused"]
    assert refused == 'the key of "one" is key; say each of them once'


def test_a_value_that_is_none_of_its_type_is_refused() -> None:
    looking = Looking(worker(2, "optimistic"))
    assert looking.look({"id": 1, "step": "two", "key": {"number": "7"}}) == {"id": 1, "tick": 0}
    assert "number='seven' is no int" in looking.look({"id": 1, "step": "two", "key": {"number": "seven"}})["refused"]


class Asked:
    """Workers whose answers the test gives."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = answers
        self.it = Questions(self.tell, lambda: [f"1/{place}" for place in range(len(answers))], slack_ms=2)

    def tell(self, message: dict[str, Any]) -> None:
        for place, answer in enumerate(self.answers):
            if answer is not None:
                self.it.hear(f"1/{place}", {"id": message["look"]["id"], **answer})

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
        Asked({"refused": "say each"}, {}).ask()
    monkeypatch.setattr(questions_module, "ANSWER_LIMIT_S", 0.1)
    with pytest.raises(ServiceUnavailable, match=r"1 workers have not answered.*1/1"):
        Asked({"tick": 3}, None).ask()  # type: ignore[arg-type]
