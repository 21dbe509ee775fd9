"""Asks all workers for the state of a key; only one has it."""

from __future__ import annotations

import asyncio

import msgspec

from lowtide.assignment.messages import Look, Looked
from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.service.workers.crew import Crew
from lowtide.wording import count_of

__all__ = ["Questions"]

ANSWER_LIMIT_S = 3.0


class Questions:
    """Questions to all workers of the levels after the first; belongs to the service's event loop.

    Args:
        crew: The workers.
        slack_ms: Length of a tick in ms.
    """

    def __init__(self, crew: Crew, slack_ms: int) -> None:
        self._crew = crew
        self._slack_ms = slack_ms
        self._asked = 0
        self._waiting: dict[int, tuple[set[str], list[Looked], asyncio.Event]] = {}

    async def ask(self, step: str, key: dict[str, str]) -> bytes:
        """Return the state of a key as JSON: `step`, `key`, its `min_time_ms`, and `rows`, maybe none.

        Args:
            step: The step's name.
            key: Text by column.

        Raises:
            FlowError: no step of that name has keyed state, or the key does not fit it.
            ServiceUnavailable: a worker did not answer in time.
        """
        self._asked += 1
        number, missing = self._asked, set(self._crew.later())
        answers: list[Looked] = []
        over = asyncio.Event()
        self._waiting[number] = missing, answers, over
        if not missing:
            over.set()
        try:
            self._crew.tell_all(Look(number, step, key))
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await over.wait()
        except TimeoutError:
            raise ServiceUnavailable(
                f"{count_of(len(missing), 'worker')} did not answer within {ANSWER_LIMIT_S:g} s: "
                f"{', '.join(sorted(missing))}",
                way_out="try again; `lowtide status` shows the job's state",
            ) from None
        finally:
            del self._waiting[number]
        refused = [answer.cause for answer in answers if answer.cause]
        known = [(answer.tick, answer.state) for answer in answers if answer.tick is not None]
        if refused or not known:
            raise FlowError(
                refused[0] if refused else f'the flow has no step "{step}" with state per key',
                way_out=f"ask for /state/{step}?COLUMN=VALUE with the columns of the step's key",
            )
        # Each worker knows another min time; the one with the key gives that of its answer.
        lowest = min(tick for tick, _ in known)
        tick, rows = next(((tick, state) for tick, state in known if state is not None), (lowest, "[]"))
        answer = {"step": step, "key": key, "min_time_ms": tick * self._slack_ms, "rows": msgspec.Raw(rows.encode())}
        return msgspec.json.encode(answer)

    def hear(self, worker: str, answer: Looked) -> None:
        """Take a worker's answer."""
        waiting = self._waiting.get(answer.id)
        if waiting is None:
            return
        missing, answers, over = waiting
        if worker in missing:
            missing.discard(worker)
            answers.append(answer)
        if not missing:
            over.set()
