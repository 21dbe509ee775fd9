"""Asks all workers for the state of a key; only one has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from lowtide.errors import FlowError, ServiceUnavailable

__all__ = ["Questions"]

ANSWER_LIMIT_S = 3.0


class Questions:
    """Questions to all workers of the levels behind the first; belongs to the service's event loop.

    Args:
        tell: Sends a message to all workers.
        workers: The names of those that answer.
        slack_ms: How long a tick is.
    """

    def __init__(
        self, tell: Callable[[dict[str, Any]], None], workers: Callable[[], Sequence[str]], slack_ms: int
    ) -> None:
        self._tell = tell
        self._workers = workers
        self._slack_ms = slack_ms
        self._asked = 0
        self._waiting: dict[int, tuple[set[str], list[dict[str, Any]], asyncio.Event]] = {}

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
        number, missing = self._asked, set(self._workers())
        answers: list[dict[str, Any]] = []
        over = asyncio.Event()
        self._waiting[number] = missing, answers, over
        if not missing:
            over.set()
        try:
            self._tell({"look": {"id": number, "step": step, "key": key}})
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await over.wait()
        except TimeoutError:
            raise ServiceUnavailable(
                f"{len(missing)} workers have not answered for {ANSWER_LIMIT_S:g} s: {', '.join(sorted(missing))}",
                way_out="ask again; `lowtide status` says how it stands with the job",
            ) from None
        finally:
            del self._waiting[number]
        refused = [answer["refused"] for answer in answers if "refused" in answer]
        known = [answer for answer in answers if "tick" in answer]
        if refused or not known:
            raise FlowError(
                refused[0] if refused else f'the flow has no step "{step}" with state that is kept by key',
                way_out=f"ask for /state/{step}?COLUMN=VALUE with the columns that the step is keyed by",
            )
        # Each worker has heard of another min time; the one that has the key says which it is as of.
        found = next((answer for answer in known if "state" in answer), None)
        tick = min(answer["tick"] for answer in known) if found is None else found["tick"]
        rows = [] if found is None else json.loads(found["state"])
        return json.dumps({"step": step, "key": key, "min_time_ms": tick * self._slack_ms, "rows": rows}).encode()

    def hear(self, worker: str, said: dict[str, Any]) -> None:
        """Take a worker's answer."""
        waiting = self._waiting.get(said["id"])
        if waiting is None:
            return
        missing, answers, over = waiting
        if worker in missing:
            missing.discard(worker)
            answers.append(said)
        if not missing:
            over.set()
