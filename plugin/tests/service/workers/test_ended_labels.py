"""The service asks workers which labels have ended, while somebody waits, and tells what is delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lowtide.assignment.messages import LabelsEnded, LookForLabels, WorkerOrder
from lowtide.service.workers import asking
from lowtide.service.workers import ended_labels as ended_labels_module
from lowtide.service.workers.crew import Crew
from lowtide.service.workers.ended_labels import EndedLabels
from lowtide.service.workers.register import Register, Worker
from lowtide.status.subscriptions import Hub, Subscription


class Workers:
    """Three workers, of which two are after the first level; what they know the test says.

    Attributes:
        ended: By worker and label the tick; a worker that is not there does not answer.
        asked: All questions, each as it came to a worker.
    """

    def __init__(self) -> None:
        register = Register(1)
        for number, name in enumerate(["0/documents-0", "1/0", "1/1"]):
            register.workers[name] = Worker(name, number, "0", 0)
        self.ended: dict[str, dict[str, int]] = {"0/documents-0": {}, "1/0": {}, "1/1": {}}
        self.asked: list[tuple[str, LookForLabels]] = []
        self.published: int | None = None
        self.hub = Hub(
            incarnation=1,
            slack_ms=2,
            start_ms=None,
            segments={},
            labels={"indexed": {"name": "str"}, "paid": {"order": "int"}},
        )
        self.it = EndedLabels(Crew(register, self.send, 2), self.hub, lambda: self.published, 2)

    def send(self, worker: str, order: WorkerOrder) -> None:
        assert isinstance(order, LookForLabels)
        self.asked.append((worker, order))
        if worker in self.ended:
            known = self.ended[worker]
            self.it.hear(worker, LabelsEnded(order.id, {each: known[each] for each in order.labels if each in known}))

    async def settled(self) -> None:
        """Wait until nothing is being asked."""
        for _ in range(20):
            await asyncio.sleep(0)


def published(subscription: Subscription) -> list[tuple[object, int | None]]:
    return [(each.data["about"], each.time_ms) for each in subscription.take() if each.kind == "done"]


def played(play: Callable[[Workers], object]) -> None:
    async def run() -> None:
        workers = Workers()
        await play(workers)  # type: ignore[misc]
        await workers.it.close()

    asyncio.run(run())


def test_nobody_is_asked_while_nobody_waits() -> None:
    async def play(workers: Workers) -> None:
        workers.it.soon()
        await workers.settled()
        assert workers.asked == []
        subscription = workers.hub.subscribe(["done:indexed:a"])
        await workers.settled()
        assert [(name, order.step, order.labels) for name, order in workers.asked[:3]] == [
            (name, "indexed", ["a"]) for name in ("0/documents-0", "1/0", "1/1")
        ]
        subscription.close()
        workers.asked.clear()
        workers.it.soon()
        await workers.settled()
        assert workers.asked == []

    played(play)


def test_a_label_is_reported_when_all_of_its_tick_and_its_own_record_is_delivered() -> None:
    async def play(workers: Workers) -> None:
        subscription = workers.hub.subscribe(["done:indexed:a", "done:paid:7"], at_ms=0)
        workers.ended["1/1"] = {"a": 50}
        for delivered in (None, 49, 50):
            workers.published = delivered
            workers.it.soon()
            await workers.settled()
            assert published(subscription) == []
            assert await workers.it.ended_ms("indexed", "a") is None
        workers.published = 51
        workers.it.soon()
        await workers.settled()
        assert published(subscription) == [("done:indexed:a", 100)]
        assert await workers.it.ended_ms("indexed", "a") == 100
        assert await workers.it.ended_ms("paid", "7") is None
        workers.ended["1/0"] = {"7": 900}
        assert workers.it.all_published() is False, "somebody waits"
        await workers.settled()
        assert workers.it.all_published() is True
        assert published(subscription) == [("done:paid:7", 1_800)], "time has ended"

    played(play)


def test_of_a_label_that_ended_in_several_hash_units_the_last_end_counts() -> None:
    async def play(workers: Workers) -> None:
        workers.published = 100
        workers.ended |= {"1/0": {"a": 60}, "1/1": {"a": 50}}
        assert await workers.it.ended_ms("indexed", "a") == 120

    played(play)


def test_many_labels_are_asked_for_in_several_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_labels_module, "MAX_ASKED", 2)

    async def play(workers: Workers) -> None:
        for number in range(5):
            workers.hub.subscribe([f"done:indexed:{number}"])
        await workers.settled()
        workers.asked.clear()
        workers.it.soon()
        await workers.settled()
        assert [order.labels for name, order in workers.asked if name == "1/0"] == [["0", "1"], ["2", "3"], ["4"]]

    played(play)


def test_a_worker_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_LIMIT_S", 0.05)

    async def play(workers: Workers) -> None:
        workers.published = 100
        workers.ended = {"1/0": {}}
        subscription = workers.hub.subscribe(["done:indexed:a"])
        await asyncio.sleep(0.2)
        assert published(subscription) == []
        workers.ended["1/1"] = {"a": 50}
        workers.it.soon()
        await workers.settled()
        assert published(subscription) == [("done:indexed:a", 100)]
        workers.it.hear("1/1", LabelsEnded(1, {"a": 70}))
        assert published(subscription) == [], "an answer to an old question"

    played(play)


def test_where_nobody_waits_the_end_of_time_waits_for_nobody() -> None:
    async def play(workers: Workers) -> None:
        assert workers.it.all_published() is True

    played(play)
