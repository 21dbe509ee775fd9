"""Cuts the answers of calls below what a job's commits need, after each commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from lowtide.errors import ServiceUnavailable
from lowtide.sinks.answers.log import cut_answers

LOG = logging.getLogger(__name__)
ANSWER_LIMIT_S = 10.0
AGAIN_S = 30.0

Cut = Callable[[Mapping[str, Any], str, int, int, float], object]


class AnswersCutter:
    """Cuts the answers of one life's calls; belongs to the service's event loop, threads ask Kafka.

    Args:
        settings: librdkafka's, of the way in.
        topics: By topic of answers the number of its partitions.
        cut: Cuts one topic, as `cut_answers` does.
        again_s: The time after which what has failed is tried again.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Mapping[str, int],
        cut: Cut = cut_answers,
        again_s: float = AGAIN_S,
    ) -> None:
        self._settings, self._topics, self._cut_one = settings, topics, cut
        self._again_s = again_s
        self._below = -1
        """The tick that was asked for last."""
        self._done: dict[str, int] = {}
        """By topic the tick below which it is cut."""
        self._task: asyncio.Task[None] | None = None

    def cut(self, below: int) -> None:
        """Cut below a tick, soon; what fails is tried again until it is done."""
        self._below = max(self._below, below)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Cancel what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            below = self._below
            due = {topic: lanes for topic, lanes in self._topics.items() if self._done.get(topic, -1) < below}
            if not due:
                return
            done = [await self._cut(topic, lanes, below) for topic, lanes in due.items()]
            if not all(done):
                await asyncio.sleep(self._again_s)

    async def _cut(self, topic: str, lanes: int, below: int) -> bool:
        """Cut one topic; return whether it is done."""
        try:
            await asyncio.to_thread(self._cut_one, self._settings, topic, lanes, below, ANSWER_LIMIT_S)
        except ServiceUnavailable as error:
            LOG.warning("could not cut the answers of a call; trying again in %g s: %s", self._again_s, error)
        except Exception:
            # They only take room, so it ends no life.
            LOG.exception('could not cut the topic "%s" of answers; trying again in %g s', topic, self._again_s)
        else:
            self._done[topic] = below
            return True
        return False
