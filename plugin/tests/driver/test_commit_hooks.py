"""Functions that hear of commits: each commit at least once, in order, over lives, rewinds and failures."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hanging import HANGS_S
from kept_snapshots import commit, record, seal

import lowtide as lt
from lowtide.driver.commit_followers import CommitFollowers
from lowtide.driver.commit_hooks import tell
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.steps.hooks import OF_THE_FLOW, Hooks
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.errors import Fenced
from lowtide_snapshots.format.names import snapshot_id
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import StoreSetting, open_store

JOB = "hooks"


class Place:
    """A job's commits, made by hand, and who has heard of them; in memory."""

    def __init__(self, folder: Path) -> None:
        self.job = JOB
        self.log: Any = MemoryCommitLog(self.job)
        self.store: Any = self
        self._files = open_store(StoreSetting(str(folder)))
        self._told: dict[str, list[str]] = {}
        self.life = 0
        self.live()

    def live(self) -> None:
        """Begin a life."""
        self.life = self.log.raise_incarnation()

    def commit(self, number: int) -> str:
        manifest = seal(self._files, self.job, number, tick=10 * number, incarnation=self.life)
        commit(self.log, manifest)
        return manifest.id

    def tell(self, **hooks: Any) -> bool:
        return tell(Hooks(hooks), self.store, self.life, self.log)

    def told(self) -> dict[str, list[str]]:
        return dict(self._told)

    def set_told(self, incarnation: int, told: dict[str, list[str]]) -> None:
        if incarnation != self.log.incarnation():
            raise Fenced("a life that is over")
        self._told = told


class InZooKeeper(Place):
    """The same in a real ZooKeeper."""

    def __init__(self, zookeeper: str, folder: Path) -> None:
        super().__init__(folder)
        self.job, self._zookeeper = f"{JOB}-{uuid.uuid4().hex[:8]}", zookeeper
        self.store = self.another().open()
        self.log = ZooKeeperCommitLog(self.store)
        self.store.freeze(record(self.job))
        self.store.take_lease("test", 10.0, lambda _: None)
        self.live()

    def live(self) -> None:
        self.life = (self.log if self.store is self else self.store).raise_incarnation()

    def another(self) -> JobStore:
        return JobStore(self._zookeeper, self.job)


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(name="real")
def _real(zookeeper: str, tmp_path: Path) -> Iterator[InZooKeeper]:
    place = InZooKeeper(zookeeper, tmp_path)
    yield place
    place.store.close()


def test_each_commit_is_told_once_and_in_order_also_those_of_lives_before(place: Place) -> None:
    heard: list[tuple[str, int | None]] = []

    def hear(news: lt.News) -> None:
        heard.append((news.data["snapshot"], news.time_ms))

    first, second = place.commit(1), place.commit(2)
    assert place.tell(out=hear)
    assert heard == [(first, 100), (second, 200)]
    assert place.tell(out=hear)
    place.live()
    third = place.commit(3)
    late: list[str] = []
    assert place.tell(out=hear, added=lambda news: late.append(news.data["snapshot"]))
    assert heard[2:] == [(third, 300)]
    assert late == [first, second, third], "one that is new to the job hears of all that are there"


def test_a_savepoint_beside_and_what_comes_after_a_rewind_are_told_too(place: Place) -> None:
    """Both lie below commits that were told before: one position in time would leave them out."""
    heard: list[tuple[str, int | None]] = []

    def hear(news: lt.News) -> None:
        heard.append((news.data["snapshot"], news.time_ms))

    place.log.reserve(place.life, snapshot_id(place.life, 2), [])
    first, third = place.commit(1), place.commit(3)
    assert place.tell(out=hear)
    second = place.commit(2)
    assert place.tell(out=hear)
    assert heard == [(first, 100), (third, 300), (second, 200)]
    place.live()
    place.log.rewind(place.life, place.log.commits()[0])
    again = place.commit(2)
    assert place.tell(out=hear)
    assert heard[3:] == [(again, 200)]
    assert place.told() == {"out": [first, again]}, "of those that are there"


def test_one_that_raises_is_named_and_called_again_and_holds_up_no_other(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    other: list[str] = []
    down = True

    def hear(news: lt.News) -> None:
        heard.append(news.data["snapshot"])
        if down and len(heard) > 1:
            raise ConnectionError("the warehouse is away")

    ids = [place.commit(number) for number in (1, 2, 3)]
    assert not place.tell(out=hear, more=lambda news: other.append(news.data["snapshot"]))
    assert heard == ids[:2], "it hears of no later one before this one"
    assert other == ids
    assert f'on_commit of sink "out" failed at commit {ids[1]}, which stands' in caplog.text
    assert "the warehouse is away" in caplog.text
    assert [each.id for each in place.log.commits()] == ids, "the commit stands"
    down = False
    assert place.tell(out=hear)
    assert heard == [ids[0], ids[1], ids[1], ids[2]]


@pytest.mark.zookeeper
def test_a_life_that_is_over_notes_nothing(real: InZooKeeper) -> None:
    """Its last call is repeated by the life after it: at least once."""
    heard: list[str] = []
    here = real.commit(1)
    before = real.life
    real.live()
    with pytest.raises(Fenced):
        tell(Hooks(out=lambda news: heard.append(news.data["snapshot"])), real.store, before, real.log)
    assert real.tell(out=lambda news: heard.append(news.data["snapshot"]))
    assert heard == [here, here]


@pytest.mark.zookeeper
def test_a_thread_tells_what_comes_and_at_its_end_what_is_left(real: InZooKeeper) -> None:
    heard: list[str] = []
    told = threading.Event()

    def hear(news: lt.News) -> None:
        heard.append(news.data["snapshot"])
        told.set()

    another = real.another()
    hooks = CommitFollowers(another, {"on_commit": partial(tell, Hooks({OF_THE_FLOW: hear}), another, real.life)})
    first = real.commit(1)
    hooks.start()
    assert told.wait(HANGS_S)
    told.clear()
    second = real.commit(2)
    assert told.wait(HANGS_S), "ZooKeeper reports it"
    third = real.commit(3)
    hooks.close(HANGS_S)
    assert heard == [first, second, third]


def test_hooks_stay_in_the_driver() -> None:
    lock = threading.Lock()

    def hear(_: lt.News) -> None:
        with lock:
            """Something that cannot be pickled."""

    flow = lt.Flow("hooks", on_commit=hear)
    orders = flow.read("orders", lt.kafka("orders", lt.raw()))
    orders.write("out", lt.kafka("out", lt.raw()), on_commit=hear)
    plan = compile_flow(flow, parallelism=1)
    assert set(plan.hooks) == {OF_THE_FLOW, "out"}
    assert pickle.loads(pickle.dumps(plan.hooks)) == {}


async def wrong(_: lt.News) -> None:
    """Nobody awaits it."""


@pytest.mark.parametrize(("hook", "found"), [(wrong, "an async function"), ("hear", "'hear'")])
def test_what_cannot_be_called_is_refused(hook: Any, found: str) -> None:
    flow = lt.Flow("hooks")
    orders = flow.read("orders", lt.kafka("orders", lt.raw()))
    with pytest.raises(FlowError, match=f"on_commit= of write takes a function .* found {found}"):
        orders.write("out", lt.kafka("out", lt.raw()), on_commit=hook)
