"""Asks all workers for the state of keys; only one has each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from lowtide.assignment.messages import Look, LookAround, Looked, WorkerOrder
from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.service.workers.asking import ANSWER_LIMIT_S, Asking
from lowtide.service.workers.crew import Crew
from lowtide.wording import count_of

Key = dict[str, str]
"""A key as text by column."""


class Questions:
    """Questions to all workers of the levels after the first; belongs to the service's event loop.

    Args:
        crew: The workers.
        slack_ms: Length of a tick in ms.
    """

    def __init__(self, crew: Crew, slack_ms: int) -> None:
        self._asking: Asking[Looked] = Asking(crew)
        self._slack_ms = slack_ms

    async def look(self, step: str, keys: Sequence[Key]) -> list[dict[str, Any]]:
        """Return the states of keys: of each its `key`, `min_time_ms`, and `rows`, maybe none; errors as `_known`.

        Args:
            step: The step's name.
            keys: Its keys; of a broadcast one without columns.
        """
        known = await self._known(step, lambda number: Look(number, step, list(keys)))
        # Each worker knows another min time; the one with the key gives that of its answer.
        found: dict[int, tuple[int, str]] = {}
        for tick, answer in sorted(known, key=lambda each: each[0], reverse=True):
            found |= {place: (tick, rows) for place, rows in answer.rows.items()}
        nothing = (min(tick for tick, _ in known), "[]")
        states = [(key, *found.get(place, nothing)) for place, key in enumerate(keys)]
        return [
            {"key": key, "min_time_ms": tick * self._slack_ms, "rows": msgspec.Raw(rows.encode())}
            for key, tick, rows in states
        ]

    async def look_around(self, step: str, unit: int | None, limit: int) -> dict[str, Any]:
        """Return the first keys with a state: their `rows`, the lowest `min_time_ms`, and whether there are `more`.

        Args:
            step: The step's name.
            unit: The hash unit to look at; None for any.
            limit: The number of keys.

        Raises: see `_known`.
        """
        known = await self._known(step, lambda number: LookAround(number, step, unit, limit))
        found = [rows for _, answer in known for rows in answer.rows.values()]
        return {
            "min_time_ms": min(tick for tick, _ in known) * self._slack_ms,
            "more": len(found) > limit or any(answer.more for _, answer in known),
            "keys": [{"rows": msgspec.Raw(rows.encode())} for rows in found[:limit]],
        }

    async def _known(self, step: str, question: Callable[[int], WorkerOrder]) -> list[tuple[int, Looked]]:
        """Return the answers of the workers that have a step, each with its tick.

        Raises:
            FlowError: no step of that name has state, or a key does not fit it.
            ServiceUnavailable: a worker did not answer in time.
        """
        answers, missing = await self._asking.ask(question)
        if missing:
            raise ServiceUnavailable(
                f"{count_of(len(missing), 'worker')} did not answer within {ANSWER_LIMIT_S:g} s: "
                f"{', '.join(sorted(missing))}",
                way_out="try again; `lowtide status` shows the job's state",
            )
        refused = [answer.cause for answer in answers if answer.cause]
        known = [(answer.tick, answer) for answer in answers if answer.tick is not None]
        if refused or not known:
            raise FlowError(
                refused[0] if refused else f'the flow has no step "{step}" with state',
                way_out=f"ask for /state/{step}?COLUMN=VALUE with the columns of the step's key",
            )
        return known

    def hear(self, worker: str, answer: Looked) -> None:
        """Take a worker's answer."""
        self._asking.hear(worker, answer)
