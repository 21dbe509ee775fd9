"""Asks all workers, and waits for their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from lowtide.assignment.messages import LabelsEnded, Looked, WorkerOrder
from lowtide.service.workers.crew import Crew

ANSWER_LIMIT_S = 3.0
A = TypeVar("A", Looked, LabelsEnded)


class Asking(Generic[A]):
    """Questions to all workers of the levels after the first; belongs to the service's event loop."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._asked = 0
        self._waiting: dict[int, tuple[set[str], list[A], asyncio.Event]] = {}

    async def ask(self, question: Callable[[int], WorkerOrder]) -> tuple[list[A], set[str]]:
        """Return the answers that came in time, and the workers of which none did.

        Args:
            question: Makes the question with this number.
        """
        self._asked += 1
        number, missing = self._asked, set(self._crew.later())
        answers: list[A] = []
        over = asyncio.Event()
        self._waiting[number] = missing, answers, over
        if not missing:
            over.set()
        try:
            self._crew.send_all(question(number))
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await over.wait()
        except TimeoutError:
            pass
        finally:
            del self._waiting[number]
        return answers, missing

    def hear(self, worker: str, answer: A) -> None:
        """Take a worker's answer."""
        missing, answers, over = self._waiting.get(answer.id, (set[str](), [], None))
        if worker in missing:
            missing.discard(worker)
            answers.append(answer)
            if over is not None and not missing:
                over.set()
