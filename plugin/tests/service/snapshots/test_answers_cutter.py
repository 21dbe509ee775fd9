"""The answers of calls are cut after commits; what fails is tried again, whether there is another commit or not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide.errors import ServiceUnavailable
from lowtide.service.snapshots.answers_cutter import AnswersCutter


class Kafka:
    """Cuts nothing, and refuses what it is told to.

    Attributes:
        cuts: The cuts that were asked for.
        down: The topics that cannot be cut the next time.
        error: The reason.
    """

    def __init__(self) -> None:
        self.cuts: list[tuple[str, int, int]] = []
        self.down: set[str] = set()
        self.error: Exception = ServiceUnavailable("it is away")
        self.goes = threading.Event()
        self.goes.set()

    def cut(self, _settings: Mapping[str, Any], topic: str, lanes: int, below: int, _limit_s: float) -> None:
        assert self.goes.wait(HANGS_S)
        self.cuts.append((topic, lanes, below))
        if topic in self.down:
            self.down.discard(topic)
            raise self.error


async def over(cutter: AnswersCutter) -> None:
    assert cutter._task is not None
    async with asyncio.timeout(HANGS_S):
        await asyncio.wait([cutter._task])


@pytest.mark.parametrize("error", [ServiceUnavailable("it is away"), RuntimeError("a fault of a client")])
def test_a_topic_that_could_not_be_cut_is_tried_again_without_another_commit(error: Exception) -> None:
    async def story() -> None:
        kafka = Kafka()
        cutter = AnswersCutter({}, {"a": 2, "b": 3}, kafka.cut, again_s=0.0)
        kafka.down, kafka.error = {"a"}, error
        cutter.cut(10)
        await over(cutter)
        assert kafka.cuts == [("a", 2, 10), ("b", 3, 10), ("a", 2, 10)], "one that is away holds up no other"
        cutter.cut(9)
        await over(cutter)
        cutter.cut(11)
        await over(cutter)
        assert kafka.cuts[3:] == [("a", 2, 11), ("b", 3, 11)]
        await cutter.close()

    asyncio.run(story())


def test_of_commits_in_quick_succession_the_last_one_counts() -> None:
    async def story() -> None:
        kafka = Kafka()
        kafka.goes.clear()
        cutter = AnswersCutter({}, {"a": 1}, kafka.cut)
        cutter.cut(10)
        await asyncio.sleep(0)
        for below in (20, 30):
            cutter.cut(below)
        kafka.goes.set()
        await over(cutter)
        assert kafka.cuts == [("a", 1, 10), ("a", 1, 30)]
        await cutter.close()

    asyncio.run(story())
