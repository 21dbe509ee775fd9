"""Asks all workers for the state of a key; only one has it."""

from __future__ import annotations

import asyncio

import msgspec

from lowtide.assignment.messages import Look, Looked
from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.service.workers.crew import Crew

__all__ = ["Questions"]

ANSWER_LIMIT_S = 3.0


class Questions:
    """Questions to all workers of the levels behind the first; belongs to the service's event loop.

    Args:
        crew: The workers.
        slack_ms: How long a tick is.
    """

    def __init__(self, crew: Crew, slack_ms: int) -> None:
        self._crew = crew
        self._slack_ms = slack_ms
        self._asked = 0
        self._waiting: dict[int, tuple[set[str], list[Looked], asyncio.Event]] = {}

    async def ask(self, step: str, key: dict[str, str]) -> bytes:
        """Return the state of a key as JSON: `step`, `key`, `min_time_ms` that it is as of, and `rows`, maybe none.

        Args:
            step: The step's name.
            key: Text by column.

        Raises:
            FlowError: no step of that name has keyed state, or the key is none of its.
            ServiceUnavailable: a worker has not answered in time.
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
                f"{len(missing)} workers have not answered for {ANSWER_LIMIT_S:g} s: {', '.join(sorted(missing))}",
                way_out="ask again; `lowtide status` says how it stands with the job",
            ) from None
        finally:
            del self._waiting[number]
        refused = [answer.cause for answer in answers if answer.cause]
        known = [(answer.tick, answer.state) for answer in answers if answer.tick is not None]
        if refused or not known:
            raise FlowError(
                refused[0] if refused else f'the flow has no step "{step}" with state that is kept by key',
                way_out=f"ask for /state/{step}?COLUMN=VALUE with the columns that the step is keyed by",
            )
        # Each worker has heard of another min time; the one that has the key says which it is as of.
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
