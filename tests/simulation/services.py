"""Simulated outside services: no two answers are alike, so that nobody can take one for another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any
from zlib import crc32

from lowtide.core.operators.questions import Answer, Question, place_of
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import encode_rows
from lowtide.flow.steps.steps import Ask, CallFailed
from lowtide.local.asking import kept_answers

from .verdict import Violation

TICK_BYTES = TRACE_BYTES = 8
MOST_TRIES = 3


class Services:
    """All services of a job, over all its lives.

    Args:
        rng: Chance.
        refusals: How likely an answer is a failure.

    Attributes:
        asked: By the name of a call the order keys that anybody has been asked about.
    """

    def __init__(self, rng: Random, refusals: float) -> None:
        self._rng = rng
        self._refusals = refusals
        self._answers = 0
        self.asked: dict[str, set[bytes]] = {}
        self._same: dict[str, dict[bytes, Answer]] = {}

    def ask(self, vertex: Vertex[Ask], at: bytes, kept: Mapping[bytes, Answer]) -> None:
        """Take a question (errors, where its answer is durable: Violation)."""
        if at in kept or (vertex.step.order == "answer" and place_of(at) in map(place_of, kept)):
            raise Violation("output", f'"{vertex.name}" asks again about {at.hex()}, whose answer is durable')
        self.asked.setdefault(vertex.name, set()).add(at)

    def answer(self, vertex: Vertex[Ask], question: Question, *, calm: bool) -> Answer:
        """Answer a question.

        Args:
            vertex: Who asks.
            question: The question.
            calm: Fail nobody whose life would end by it.
        """
        self._answers += 1
        number = self._answers
        if vertex.step.repeatable:
            answer = _encoded(question.row, crc32(repr(question.row).encode()) % 1000)
            self._same.setdefault(vertex.name, {})[question.at] = answer
            return answer
        if self._rng.random() < self._refusals and not (calm and vertex.step.failed == "raise"):
            return Answer(b"", CallFailed(f"refused for the time {number}", 1 + number % MOST_TRIES))
        return _encoded(question.row, number)

    def check(self, plan: Plan, seen: Mapping[str, Noted]) -> None:
        """See that all that anybody was asked about came in the oracle's run, too (errors: Violation)."""
        for vertex in plan.those(Ask):
            ats = self.asked.get(vertex.name, set())
            # A tick that an older life has not let out may be closed earlier: the record stays, with its call key.
            places = {at[TICK_BYTES:-TRACE_BYTES] for at in ats}
            gone = sorted(places - {at[TICK_BYTES:] for at in seen[vertex.name].seen})
            if gone:
                raise Violation("output", f'"{vertex.name}" was asked about {gone[0].hex()}, which does not exist')

    def kept(self, plan: Plan, stored: Mapping[str, dict[bytes, Answer]]) -> dict[str, Noted]:
        """All answers for the oracle, by call and record: those that are durable, and those that need not be."""
        return {
            each.name: Noted(kept_answers(stored[each.name] | self._same.get(each.name, {})))
            for each in plan.those(Ask)
        }


class Noted(Mapping[bytes, Answer]):
    """Answers by the places of their records; remembers which were looked up."""

    def __init__(self, answers: Mapping[bytes, Answer]) -> None:
        self._answers = answers
        self.seen: set[bytes] = set()

    def __getitem__(self, place: bytes) -> Answer:
        self.seen.add(place)
        return self._answers[place]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


def _encoded(row: Any, count: int) -> Answer:
    return Answer(encode_rows([replace(row, count=count)]))
