"""Finds out which labels have ended that subscribers wait for: asks the workers, who keep it as state.

A label's end is told once all of its tick is delivered (R18), and delivered time is stored once a second: so often it
is asked for, and when a subscriber comes. Nobody is asked while nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from lowtide.assignment.messages import LabelsEnded, LookForLabels
from lowtide.core.fronts.floors import LAST_TICK
from lowtide.service.workers.crew import Crew
from lowtide.status.subscriptions import Hub
from lowtide_snapshots.job.news import DONE

__all__ = ["EndedLabels"]

ANSWER_LIMIT_S = 3.0
MAX_ASKED = 500
"""Labels of one question."""


class EndedLabels:
    """Belongs to the service's event loop.

    Args:
        crew: The workers.
        hub: Says which labels somebody waits for, and is told of their ends.
        told: The delivered time that the outside may hear, a tick; None for none yet.
        slack_ms: How long a tick is.
    """

    def __init__(self, crew: Crew, hub: Hub, told: Callable[[], int | None], slack_ms: int) -> None:
        self._all_delivered = False
        self._crew = crew
        self._hub = hub
        self._told = told
        self._slack_ms = slack_ms
        self._asked = 0
        self._waiting: dict[int, tuple[set[str], dict[str, int], asyncio.Event]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._again = False
        hub.on_label = self.soon

    def soon(self) -> None:
        """Ask for what is waited for, if it is not being asked for; else once more after that."""
        if self._asking is not None and not self._asking.done():
            self._again = True
        elif self._hub.labels_waited_for:
            self._asking = asyncio.get_running_loop().create_task(self._ask_all())

    def all_told(self) -> bool:
        """Time has come to its end, and all is durable: return whether all labels that are waited for have been told.

        If they have not, they are asked for.
        """
        if not self._all_delivered:
            self._all_delivered = True
            self.soon()
        return self._asking is None or self._asking.done()

    async def close(self) -> None:
        """Ask no more."""
        self._hub.on_label = lambda: None
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def ended_ms(self, step: str, label: str) -> int | None:
        """When a label has ended last, in ms since 1970; None if it has not, as far as may be told."""
        ended = await self._told_of(step, [label])
        return None if label not in ended else ended[label] * self._slack_ms

    def hear(self, worker: str, answer: LabelsEnded) -> None:
        """Take a worker's answer."""
        waiting = self._waiting.get(answer.id)
        if waiting is None or worker not in waiting[0]:
            return
        missing, found, over = waiting
        missing.discard(worker)
        for label, tick in answer.ended.items():
            found[label] = max(tick, found.get(label, tick))
        if not missing:
            over.set()

    async def _ask_all(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            for step, labels in self._hub.labels_waited_for.items():
                for first in range(0, len(labels), MAX_ASKED):
                    ended = await self._told_of(step, labels[first : first + MAX_ASKED])
                    for label, tick in ended.items():
                        self._hub.reached(f"{DONE}:{step}:{label}", tick)

    async def _told_of(self, step: str, labels: list[str]) -> Mapping[str, int]:
        """By label the tick of its last end, where that may be told."""
        ended = await self._ask(step, labels)
        told = LAST_TICK if self._all_delivered else self._told()
        return {} if told is None else {label: tick for label, tick in ended.items() if tick < told}

    async def _ask(self, step: str, labels: list[str]) -> Mapping[str, int]:
        """By label the tick at which it has ended; of workers that do not answer in time nothing is known."""
        self._asked += 1
        number, missing = self._asked, set(self._crew.later())
        found: dict[str, int] = {}
        over = asyncio.Event()
        self._waiting[number] = missing, found, over
        if not missing:
            over.set()
        try:
            self._crew.tell_all(LookForLabels(number, step, labels))
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await over.wait()
        except TimeoutError:
            pass  # It is asked again.
        finally:
            del self._waiting[number]
        return found
