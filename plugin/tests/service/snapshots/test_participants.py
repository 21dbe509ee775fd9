"""The participants of a running life's snapshots: what a commit lets all of them forget."""

from __future__ import annotations

from typing import Any

from lowtide.assignment.messages import Forget, WorkerOrder
from lowtide.service.snapshots.answers_cutter import AnswersCutter
from lowtide.service.snapshots.participants import LifeParticipants
from lowtide.service.workers.crew import Crew
from lowtide.service.workers.register import Register, Worker

STARTS = [(0, 5), (1, 7)]


class Forgetful:
    """Stands for fronts, tracker and tidying; keeps what each was asked to forget."""

    def __init__(self) -> None:
        self.floors: list[tuple[int, int]] = []
        self.starts: list[list[tuple[int, int]]] = []

    def forget_floors(self, front: int, offset: int) -> None:
        self.floors.append((front, offset))

    def committed(self, starts: list[tuple[int, int]]) -> None:
        self.starts.append(starts)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_all_forget_the_floors_below_a_commits_start() -> None:
    register, sent = Register(1), list[tuple[str, WorkerOrder]]()
    for number, name in enumerate(("0/in-0", "1/0")):
        register.workers[name] = Worker(name, number, "0", 0)
    crew = Crew(register, lambda name, order: sent.append((name, order)), expected=1)
    fronts, tracker, tidying = Forgetful(), Forgetful(), Forgetful()
    participants = LifeParticipants(crew, fronts, tracker, tidying, AnswersCutter({}, {}))  # type: ignore[arg-type]
    participants.forget(STARTS)
    assert (fronts.floors, tracker.floors, tidying.starts) == (STARTS, STARTS, [STARTS])
    assert sent == [("0/in-0", Forget(STARTS)), ("1/0", Forget(STARTS))]
    assert (participants.workers(), participants.expected) == (["1/0"], 1)


def test_a_life_without_lasts_has_nothing_to_tidy() -> None:
    fronts = Forgetful()
    crew = Crew(Register(1), lambda *_: None, expected=0)
    LifeParticipants(crew, fronts, Forgetful(), None, AnswersCutter({}, {})).forget(STARTS)  # type: ignore[arg-type]
    assert fronts.floors == STARTS
