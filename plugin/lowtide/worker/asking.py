"""The questions of a host's workers to outside services, on their way to the process that asks them, and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lowtide.assignment.deployment import Deployment
from lowtide.calls import outcome
from lowtide.calls.line import Callers
from lowtide.calls.setting import settings_of
from lowtide.core.operators.questions import Answer, Answered, Question, call_key
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.steps.steps import Ask
from lowtide.status.gauges import CallerGauges

if TYPE_CHECKING:
    from lowtide.worker.stage import LevelStage

TOGETHER = 16
"""Questions that are given to the process together: so many more records than fit may be there."""


class Asking:
    """The open questions of a host.

    As many bytes as `Deployment.max_call_bytes` are given to the process that asks; further questions wait here, and
    nothing else does. Their records hold min time, and so stop the fronts (R8).

    Args:
        deployment: The plan and its settings.
        asks: The calls of the plan.
    """

    def __init__(self, deployment: Deployment, asks: Sequence[Vertex[Ask]]) -> None:
        self._job_id = deployment.job_id
        self._names = {ask.id: ask.name for ask in asks}
        self._places = {ask.id: place for place, ask in enumerate(asks)}
        self._callers = Callers(
            settings_of(deployment.plan),
            max_bytes=deployment.max_call_bytes,
            max_answer_bytes=deployment.limits.max_frame_bytes,
            pickled=deployment.calls,
        )
        self._waiting: deque[tuple[int, deque[outcome.Question]]] = deque()
        """Questions for which there is no room, each with those of the same call that came with it."""
        self._open: dict[int, tuple[LevelStage, int, bytes]] = {}
        """By number who asks, which call, and the record's order key."""
        self._asked = 0

    def ask(self, stage: LevelStage, questions: Sequence[Question]) -> None:
        """Take a worker's questions."""
        by_call: dict[int, deque[outcome.Question]] = {}
        for ask, at, row in questions:
            self._asked += 1
            self._open[self._asked] = stage, ask, at
            key = call_key(self._job_id, self._names[ask], at)
            by_call.setdefault(ask, deque()).append(outcome.Question(self._asked, key, row))
        self._waiting.extend((self._places[ask], sent) for ask, sent in by_call.items())
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the process what waits, as far as there is room."""
        callers, waiting = self._callers, self._waiting
        while waiting and not callers.full:
            call, questions = waiting[0]
            callers.ask(call, [questions.popleft() for _ in range(min(TOGETHER, len(questions)))])
            if not questions:
                waiting.popleft()

    def send(self) -> None:
        """Send what was asked, as far as that needs no waiting."""
        self._callers.send()

    def fileno(self) -> int:
        """Return what becomes readable when there are answers."""
        return self._callers.fileno()

    def answered(self) -> list[tuple[LevelStage, int, list[Answered]]]:
        """Return the answers that have come, by worker and call (errors: CallerDied)."""
        found: dict[tuple[LevelStage, int], list[Answered]] = {}
        for each in self._callers.answers():
            stage, ask, at = self._open.pop(each.id)
            found.setdefault((stage, ask), []).append(Answered(at, Answer(each.value or b"", each.failure)))
        self._pass_on()
        return [(stage, ask, answers) for (stage, ask), answers in found.items()]

    def gauges(self) -> dict[str, CallerGauges]:
        """Return how services have answered since the host began, by step."""
        return {
            each.name: CallerGauges(
                oldest_s=each.oldest_s, seconds=each.seconds.counts, retries=each.retries, failures=each.failures
            )
            for each in self._callers.gauges()
        }

    @property
    def restarts(self) -> int:
        """The number of times that the process that asks was made again."""
        return self._callers.restarts

    def close(self, timeout_s: float) -> None:
        """End the process that asks."""
        self._callers.close(timeout_s)


def asking_of(deployment: Deployment) -> Asking | None:
    """Return what a host needs to ask; None if the flow has no calls."""
    asks = list(deployment.plan.those(Ask))
    return Asking(deployment, asks) if asks else None
