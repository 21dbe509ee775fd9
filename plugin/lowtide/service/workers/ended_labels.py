"""Finds out which labels that subscribers wait for have ended: asks the workers, which keep that as state.

A label's end is published once all of its tick is delivered (R18), and delivered time is stored once a second: so it
asks each second, and when a subscriber comes, but only while someone waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from lowtide.assignment.messages import LabelsEnded, LookForLabels
from lowtide.core.fronts.floors import LAST_TICK
from lowtide.service.workers.asking import Asking
from lowtide.service.workers.crew import Crew
from lowtide.status.subscriptions import Hub
from lowtide_snapshots.job.news import DONE

MAX_ASKED = 500
"""The number of labels in one question."""


class EndedLabels:
    """The ended labels of a life; belongs to the service's event loop.

    Args:
        crew: The workers.
        hub: Knows the labels that subscribers wait for, and takes their ends.
        published: The published delivered time, a tick; None for none yet.
        slack_ms: Length of a tick in ms.
    """

    def __init__(self, crew: Crew, hub: Hub, published: Callable[[], int | None], slack_ms: int) -> None:
        self._all_delivered = False
        self._workers: Asking[LabelsEnded] = Asking(crew)
        self._hub = hub
        self._published = published
        self._slack_ms = slack_ms
        self._asking: asyncio.Task[None] | None = None
        self._again = False
        hub.on_label = self.soon

    def soon(self) -> None:
        """Ask for the awaited labels, unless that is under way; else once more after it."""
        if self._asking is not None and not self._asking.done():
            self._again = True
        elif self._hub.labels_waited_for:
            self._asking = asyncio.get_running_loop().create_task(self._ask_all())

    def all_published(self) -> bool:
        """Return whether all awaited labels are published, at the end of time, when all is durable.

        Ask for them if not.
        """
        if not self._all_delivered:
            self._all_delivered = True
            self.soon()
        return self._asking is None or self._asking.done()

    async def close(self) -> None:
        """Stop asking."""
        self._hub.on_label = lambda: None
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def ended_ms(self, step: str, label: str) -> int | None:
        """Return the last end of a label, in ms since 1970; None if there is none that may be published."""
        ended = await self._to_publish(step, [label])
        return None if label not in ended else ended[label] * self._slack_ms

    def hear(self, worker: str, answer: LabelsEnded) -> None:
        """Take a worker's answer."""
        self._workers.hear(worker, answer)

    async def _ask_all(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            for step, labels in self._hub.labels_waited_for.items():
                for first in range(0, len(labels), MAX_ASKED):
                    ended = await self._to_publish(step, labels[first : first + MAX_ASKED])
                    for label, tick in ended.items():
                        self._hub.reached(f"{DONE}:{step}:{label}", tick)

    async def _to_publish(self, step: str, labels: list[str]) -> Mapping[str, int]:
        """Return by label the tick of its last end, if that may be published."""
        ended = await self._ask(step, labels)
        published = LAST_TICK if self._all_delivered else self._published()
        return {} if published is None else {label: tick for label, tick in ended.items() if tick < published}

    async def _ask(self, step: str, labels: list[str]) -> Mapping[str, int]:
        """Return by label the tick at which it ended; without workers that do not answer in time."""
        answers, _ = await self._workers.ask(lambda number: LookForLabels(number, step, labels))
        found: dict[str, int] = {}
        for answer in answers:
            for label, tick in answer.ended.items():
                found[label] = max(tick, found.get(label, tick))
        return found  # Of those that do not answer, the next call asks again.
