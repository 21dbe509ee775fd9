"""The coordinator: it names what holds a snapshot up, reports a commit once, takes snapshots if nobody does."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide.assignment.messages import (
    Cancel,
    Committed,
    PartCount,
    Pinned,
    ShareDurable,
    ShareFailed,
    ShareSaved,
    WorkerOrder,
)
from lowtide.assignment.setting import SnapshotSetting
from lowtide.errors import ServiceUnavailable, SnapshotFailed
from lowtide.events import EventLog
from lowtide.service.snapshots.coordinator import Coordinator
from lowtide.status.job_view import SnapshotView
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.errors import CommitUnknown, ZooKeeperUnavailable
from lowtide_snapshots.format.manifest import FrontAt, Manifest
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_tracker import Floor

RECORD = JobRecord("job", 2, 128, 2, "log", 1, ("in=in",))
FLOOR = Floor(0, 3, 7)


@dataclass
class Rig:
    """A coordinator with workers that are the test's; T goes up by 10 with each request."""

    folder: Path
    taking_limit_s: float = HANGS_S
    max_commit_age_s: float = 0.0
    tick: int = 0
    sent: list[WorkerOrder] = field(default_factory=list)
    forgotten: list[list[tuple[int, int]]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    """The ticks below which answers were cut."""
    asked: list[dict[int, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=lambda: ["1/0", "1/1"])
    expected: int = 2
    refuse: Exception | None = None
    answer_first: bool = False
    stuck: bool = False
    base: str = ""

    wall: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The time at which commits are made."""
    since: str | None = None
    since_tick: int | None = None
    """The T of the older commit to which workers have left parts."""
    offsets: list[int] = field(default_factory=list)
    """The front's place at each request; 4 where nothing is said."""

    def __post_init__(self) -> None:
        self.log = MemoryCommitLog("job", now=lambda: self.wall)
        self.incarnation = self.log.raise_incarnation()
        self.events = io.StringIO()
        self.store = StoreSetting(str(self.folder))

    def coordinator(self) -> Coordinator:
        setting = SnapshotSetting(
            store=self.store,
            record=RECORD.to_json(),
            flow=(),
            base=self.base,
            steps="",
            generation=0,
            taking_limit_s=self.taking_limit_s,
            max_commit_age_s=self.max_commit_age_s,
            keep=2,
            max_age_s=None,
        )

        async def ask(call: Callable[..., Any], *arguments: Any) -> Any:
            return call(*arguments)

        self.it = Coordinator(
            setting,
            incarnation=self.incarnation,
            start=self.tick,
            log=self.log,
            ask=ask,
            participants=self,
            events=EventLog("job", self.incarnation, self.events),
            since=self.since,
        )
        return self.it

    def workers(self) -> list[str]:
        return self.names

    def send(self, order: WorkerOrder) -> None:
        self.sent.append(order)

    def fronts(self) -> list[tuple[FrontAt, str | None]]:
        return [(FrontAt(0, "in", "id", 0, self.offsets.pop(0) if self.offsets else 4, 9), None)]

    def skipped(self, front: int, offset: int) -> int:
        return {(0, 4): 5}.get((front, offset), offset)

    def forget(self, starts: list[tuple[int, int]]) -> None:
        self.forgotten.append(starts)

    def cut_answers(self, below: int) -> None:
        self.cuts.append(below)

    def floors(self, starts: Mapping[int, int]) -> tuple[Floor, ...]:
        self.asked.append(dict(starts))
        return (FLOOR,)

    async def request(self, number: int) -> int:
        if self.refuse is not None:
            raise self.refuse
        if not self.stuck:
            self.tick += 10
        if self.answer_first:
            self.answers(number)
        else:
            asyncio.get_running_loop().call_later(0.02, self.answers, number)
        return self.tick

    def answers(self, number: int) -> None:
        for worker in self.names:
            self.it.hear(worker, Pinned(number=number, since=self.since_tick))
            self.it.hear(worker, ShareSaved(number))
            self.it.hear(worker, ShareDurable(number, []))

    async def over(self, id_: str, *phases: str) -> SnapshotView:
        async with asyncio.timeout(HANGS_S):
            while True:
                (view,) = [each for each in self.it.views() if each.id == id_]
                if view.phase in phases:
                    return view
                await asyncio.sleep(0.01)

    def happened(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.events.getvalue().splitlines()]


@pytest.fixture(name="rig")
def _rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "store")


def run(rig: Rig, story: Callable[[Coordinator], Awaitable[None]]) -> None:
    async def whole() -> None:
        it = rig.coordinator()
        await it.start()
        try:
            await story(it)
        finally:
            await it.close()

    asyncio.run(whole())


def test_a_request_that_is_repeated_gets_the_snapshot_that_it_began(rig: Rig) -> None:
    async def story(it: Coordinator) -> None:
        first = it.begin("hourly", commit=False, key="run 7")
        assert it.begin("hourly", commit=False, key="run 7").id == first.id
        await rig.over(first.id, "sealed")
        assert it.begin("hourly", commit=False, key="run 7").phase == "sealed"
        assert it.begin("hourly", commit=False, key="run 8").id != first.id
        assert it.begin("hourly", commit=False).id != it.begin("hourly", commit=False).id
        rig.refuse = ServiceUnavailable("it is away")
        failed = it.begin(None, commit=False, key="run 9").id
        await rig.over(failed, "failed")
        rig.refuse = None
        assert it.begin(None, commit=False, key="run 9").id != failed

    run(rig, story)


@pytest.mark.parametrize("answer_first", [False, True])
def test_a_snapshot_is_sealed_committed_and_reported_once(rig: Rig, answer_first: bool) -> None:
    """R15, R16; whichever answers first, the tracker or the workers."""
    rig.answer_first = answer_first

    async def story(it: Coordinator) -> None:
        for number in (1, 2):
            view = await rig.over(it.begin("mine", commit=True).id, "committed", "failed")
            assert (view.phase, view.min_time_ms) == ("committed", 20 * number)
        assert [commit.id for commit in rig.log.commits()] == ["000001-0001", "000001-0002"]
        async with asyncio.timeout(HANGS_S):
            while len(rig.forgotten) < 2:
                await asyncio.sleep(0.01)

    run(rig, story)
    assert rig.sent == [Committed(10), Committed(20)]
    assert rig.forgotten == [[(0, 5)], [(0, 5)]], "each commit is read again from there, as nothing is at 4"
    assert rig.asked == [{0: 5}, {0: 5}]
    assert rig.happened() == ["snapshot_sealed", "snapshot_committed"] * 2


def test_one_that_somebody_else_commits_is_reported_as_well(rig: Rig) -> None:
    async def story(it: Coordinator) -> None:
        view = await rig.over(it.begin(None, commit=False).id, "sealed")
        store = open_store(rig.store)
        (entry,) = store.names("job/manifests/")
        data = store.get(entry.name)
        rig.log.commit(Manifest.from_json(data, "here"), sha256(data))
        await rig.over(view.id, "committed")
        assert it.commits.last is not None
        assert it.commits.last.floors[0].tick == FLOOR.tick

    run(rig, story)
    assert Committed(10) in rig.sent


def test_who_is_slow_is_named(rig: Rig) -> None:
    rig.taking_limit_s = 0.3
    rig.answers = lambda number: rig.it.hear("1/0", PartCount(number, 3))  # type: ignore[method-assign]

    async def story(it: Coordinator) -> None:
        view = await rig.over(it.begin(None, commit=True).id, "failed")
        assert str(view.why).startswith(
            "it took more than 0.3 s: worker 1/0 has saved 0 of 3 parts; worker 1/1 has saved 0"
        )
        assert str(view.why) in it.trouble

    run(rig, story)
    assert rig.sent == [Cancel(1)]
    assert rig.log.commits() == []


def test_what_a_worker_cannot_do_is_said_with_its_name(rig: Rig) -> None:
    full = Cause("other", "the disk is full")
    rig.answers = lambda number: rig.it.hear("1/1", ShareFailed(number, full))  # type: ignore[method-assign]

    async def story(it: Coordinator) -> None:
        view = await rig.over(it.begin(None, commit=True).id, "failed")
        assert "worker 1/1: the disk is full" in str(view.why)

    run(rig, story)


def test_a_snapshot_is_refused_where_min_time_stands_or_workers_are_missing(rig: Rig) -> None:
    async def story(it: Coordinator) -> None:
        await rig.over(it.begin(None, commit=True).id, "committed")
        rig.stuck = True
        view = await rig.over(it.begin(None, commit=True).id, "failed")
        assert "min time has not moved since the last commit, or since the start: it is 20 ms" in str(view.why)
        rig.stuck, rig.names = False, ["1/0"]
        view = await rig.over(it.begin(None, commit=True).id, "failed")
        assert "1 of 2 workers are not up yet" in str(view.why)
        rig.names, rig.refuse = ["1/0", "1/1"], ServiceUnavailable("the tracker is being rebuilt")
        view = await rig.over(it.begin(None, commit=True).id, "failed")
        assert "the tracker is being rebuilt" in str(view.why)

    run(rig, story)


@pytest.mark.parametrize("done", [False, True])
def test_a_commit_whose_outcome_is_unknown_is_asked_for_until_it_is_known(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """R16: unknown is not failed."""
    real, tries = rig.log.commit, []

    def commit(manifest: Manifest, data: str) -> Any:
        tries.append(manifest.id)
        answer = real(manifest, data) if done or len(tries) > 1 else None
        if len(tries) == 1:
            raise CommitUnknown("the answer was lost")
        return answer

    monkeypatch.setattr(rig.log, "commit", commit)

    async def story(it: Coordinator) -> None:
        await rig.over(it.begin(None, commit=True).id, "committed")

    run(rig, story)
    assert len(tries) == 2 or done
    assert len(rig.log.commits()) == 1


def test_an_older_life_commits_nothing(rig: Rig) -> None:
    async def story(it: Coordinator) -> None:
        view = it.begin(None, commit=False)
        await rig.over(view.id, "sealed")
        rig.log.raise_incarnation()
        view = await rig.over(it.begin(None, commit=True).id, "failed")
        assert str(view.why).startswith("it is sealed but not committed")

    run(rig, story)
    assert rig.log.commits() == []


def test_the_job_takes_its_own_when_nobody_has_for_too_long_and_keeps_as_many_as_the_conf_says(rig: Rig) -> None:
    rig.max_commit_age_s = 0.05

    async def story(it: Coordinator) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANGS_S):
            while "commits_pruned" not in rig.happened():
                it.look(loop.time(), rig.tick + 1)
                await asyncio.sleep(0.02)

    run(rig, story)
    assert len(rig.log.commits()) == 2


def begun_again(rig: Rig) -> None:
    """Another life, from the last commit."""
    last = rig.log.last()
    assert last is not None
    rig.incarnation = rig.log.raise_incarnation()
    rig.base = open_store(rig.store).get(last.manifest).decode()


def test_a_commit_s_age_is_that_of_the_commit_over_lives(rig: Rig) -> None:
    """Time that outlives a life comes from what is stored."""

    async def first(it: Coordinator) -> None:
        rig.wall = datetime.now(UTC) - timedelta(minutes=50)
        await rig.over(it.begin(None, commit=True).id, "committed")
        assert 2990 < (it.summary(time.monotonic()).committed_s or 0) < 3010 + HANGS_S

    async def later(it: Coordinator) -> None:
        await asyncio.sleep(0.01)
        assert 2990 < (it.summary(time.monotonic()).committed_s or 0) < 3010 + HANGS_S
        rig.wall = datetime.now(UTC) + timedelta(hours=5)
        await rig.over(it.begin(None, commit=True).id, "committed")
        assert (it.summary(time.monotonic()).committed_s or 0) < HANGS_S, "by a clock that is ahead it was made now"

    run(rig, first)
    begun_again(rig)
    run(rig, later)


def test_a_job_that_dies_oftener_than_its_commits_are_due_takes_its_own(rig: Rig) -> None:
    """Soon after a start, once all workers are there and min time has moved; before that it could only fail."""
    rig.max_commit_age_s = 3600.0

    async def first(it: Coordinator) -> None:
        rig.wall = datetime.now(UTC) - timedelta(minutes=61)
        await rig.over(it.begin(None, commit=True).id, "committed")

    async def later(it: Coordinator) -> None:
        await asyncio.sleep(0.01)
        it.look(time.monotonic(), rig.tick)
        rig.names = ["1/0"]
        it.look(time.monotonic(), rig.tick + 1)
        assert not it.views(), "it is not going yet"
        rig.names, rig.wall = ["1/0", "1/1"], datetime.now(UTC)
        it.look(time.monotonic(), rig.tick + 1)
        (view,) = it.views()
        await rig.over(view.id, "committed")
        it.look(time.monotonic(), rig.tick + 1)
        assert len(it.views()) == 1

    run(rig, first)
    begun_again(rig)
    run(rig, later)


def test_a_job_without_a_commit_counts_from_its_first_life(rig: Rig) -> None:
    rig.max_commit_age_s, rig.since = 3600.0, (datetime.now(UTC) - timedelta(hours=2)).isoformat()

    async def story(it: Coordinator) -> None:
        assert (it.summary(time.monotonic()).committed_s or 0) > 7000
        it.look(time.monotonic(), 1)
        (view,) = it.views()
        await rig.over(view.id, "committed")

    run(rig, story)


def test_a_store_that_cannot_be_written_is_reported_before_anybody_asks_for_a_snapshot(rig: Rig) -> None:
    rig.folder.parent.mkdir(exist_ok=True)
    rig.folder.write_text("a file, and no folder")

    async def story(it: Coordinator) -> None:
        async with asyncio.timeout(HANGS_S):
            while not it.trouble:
                await asyncio.sleep(0.01)
        assert "cannot write snapshots" in it.trouble
        assert str(rig.folder) in it.trouble

    run(rig, story)


def test_a_commit_that_is_overtaken_before_it_is_reported_counts_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two commits that follow each other at once, ZooKeeper may tell the last one only."""
    watchers: list[Callable[[Any], None]] = []
    monkeypatch.setattr(rig.log, "watch", watchers.append)

    async def story(it: Coordinator) -> None:
        sealed = [(await rig.over(it.begin(None, commit=False).id, "sealed")).id for _ in range(2)]
        store = open_store(rig.store)
        for entry in store.names("job/manifests/"):
            data = store.get(entry.name)
            rig.log.commit(Manifest.from_json(data, "here"), sha256(data))
        watchers[0](rig.log.last())
        for id_ in sealed:
            await rig.over(id_, "committed")

    run(rig, story)


async def held_up(rig: Rig, it: Coordinator, name: str | None, *, commit: bool) -> Callable[[], None]:
    """A snapshot that all have heard of, and that goes on when this is called."""
    answers, number = rig.answers, len(it.views()) + 1

    def heard(number: int) -> None:
        for worker in rig.names:
            rig.it.hear(worker, Pinned(number=number, front=None, since=rig.since_tick))

    rig.answers = heard  # type: ignore[method-assign]
    it.begin(name, commit=commit)
    async with asyncio.timeout(HANGS_S):
        while not it._takings.of_number(number).heard:  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    rig.answers = answers  # type: ignore[method-assign]
    return lambda: rig.answers(number)


def ids(rig: Rig) -> list[str]:
    return [commit.id[-4:] for commit in rig.log.commits()]


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_named_one_that_is_overtaken_is_committed_beside_the_newer(rig: Rig, by_itself: bool) -> None:
    """R16: by the job, or by somebody else once it is sealed; the last stays the last."""

    async def story(it: Coordinator) -> None:
        await rig.over(it.begin(None, commit=True).id, "committed")
        rig.since_tick = 10
        go_on = await held_up(rig, it, "before 2.0", commit=by_itself)
        assert [(each.snapshot, each.bases) for each in rig.log.reserved()] == [("000001-0002", ("000001-0001",))]
        for _ in range(3):
            await rig.over(it.begin(None, commit=True).id, "committed")
        rig.forgotten.clear()
        go_on()
        if not by_itself:
            await rig.over("000001-0002", "sealed")
            store = open_store(rig.store)
            (entry,) = (each for each in store.names("job/manifests/") if "000001-0002" in each.name)
            data = store.get(entry.name)
            rig.log.commit(Manifest.from_json(data, "here"), sha256(data))
        await rig.over("000001-0002", "committed")
        assert (rig.log.last() or 1).id == "000001-0005"  # type: ignore[union-attr]
        assert ids(rig) == ["0001", "0002", "0003", "0004", "0005"]
        assert rig.log.reserved() == []
        assert it.commits.last is not None
        assert it.commits.last.id == "000001-0005"
        assert it.trouble == ""

    run(rig, story)
    assert Committed(20) not in rig.sent, "workers go by the newest"
    assert rig.happened().count("snapshot_committed") == 5


def test_answers_of_calls_are_kept_for_every_commit_and_for_one_that_may_come_below(rig: Rig) -> None:
    """Also for one that is sealed, which anybody may commit."""

    async def story(it: Coordinator) -> None:
        async def cut() -> int:
            rig.cuts.clear()
            await rig.over(it.begin(None, commit=True).id, "committed")
            async with asyncio.timeout(HANGS_S):
                while not rig.cuts:
                    await asyncio.sleep(0.005)
            return rig.cuts[-1]

        assert await cut() == 10
        go_on = await held_up(rig, it, "mine", commit=False)
        assert await cut() == 10
        rig.log.drop(rig.log.commits()[:1])
        assert await cut() == 20, "of the snapshot under way"
        go_on()
        await rig.over("000001-0002", "sealed")
        assert await cut() == 20
        rig.log.release(rig.incarnation, "000001-0002")
        it._takings.of_id("000001-0002").reserved = False  # type: ignore[union-attr]
        assert await cut() == 30

    run(rig, story)


def test_answers_are_cut_above_the_commit_that_a_life_began_from_without_another_one(rig: Rig) -> None:
    """It is kept while workers load it; then the rule has it, and a job at rest may make no other commit."""

    async def commit(it: Coordinator) -> None:
        await rig.over(it.begin(None, commit=True).id, "committed")

    async def first(it: Coordinator) -> None:
        await commit(it)

    async def later(it: Coordinator) -> None:
        restored = rig.log.restored()
        assert restored is not None
        assert restored.commit is not None, "it is loaded"
        await commit(it)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANGS_S):
            while rig.cuts[-1:] != [20]:
                if rig.happened().count("snapshot_committed") < 3:
                    it.look(loop.time(), rig.tick + 1)
                await asyncio.sleep(0.02)
        assert [each.tick for each in rig.log.commits()] == [20, 30]

    run(rig, first)
    begun_again(rig)
    rig.log.set_restored(rig.incarnation, rig.log.last())
    rig.max_commit_age_s = 0.05
    run(rig, later)


def test_floors_that_one_under_way_needs_are_kept_until_it_is_sealed(rig: Rig) -> None:
    """R17: also those that only the commit before it knows."""

    async def story(it: Coordinator) -> None:
        rig.offsets = [2, 3, 9, 9]
        await rig.over(it.begin(None, commit=True).id, "committed")
        rig.since_tick = 10
        go_on = await held_up(rig, it, "mine", commit=True)
        await rig.over(it.begin(None, commit=True).id, "committed")
        assert rig.forgotten == [[(0, 2)], [(0, 3)]], "as far as the one under way allows"
        go_on()
        await rig.over("000001-0002", "committed")
        assert rig.forgotten[-1] == [(0, 9)]

    run(rig, story)


def test_what_is_reserved_goes_with_a_snapshot_that_fails_or_is_forgotten(rig: Rig) -> None:
    rig.taking_limit_s = 0.3

    async def story(it: Coordinator) -> None:
        await held_up(rig, it, "never", commit=True)
        assert len(rig.log.reserved()) == 1
        await rig.over("000001-0001", "failed")
        async with asyncio.timeout(HANGS_S):
            while rig.log.reserved():
                await asyncio.sleep(0.01)
            for _ in range(22):
                await rig.over(it.begin("mine", commit=False).id, "sealed")
            while len(rig.log.reserved()) > 20:
                await asyncio.sleep(0.01)
        assert "000001-0002" not in {each.snapshot for each in rig.log.reserved()}

    run(rig, story)


def test_where_nothing_can_be_reserved_a_snapshot_is_taken_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise ZooKeeperUnavailable("it is away")

    monkeypatch.setattr(rig.log, "reserve", away)

    async def story(it: Coordinator) -> None:
        await rig.over(it.begin("mine", commit=True).id, "committed")

    run(rig, story)


def test_as_many_snapshots_at_once_as_can_be_reported(rig: Rig) -> None:
    async def story(it: Coordinator) -> None:
        begun = [it.begin(None, commit=False).id for _ in range(8)]
        with pytest.raises(SnapshotFailed, match="8 snapshots are already being taken"):
            it.begin(None, commit=False)
        for id_ in begun:
            await rig.over(id_, "sealed")
        for _ in range(20):
            await rig.over(it.begin(None, commit=False).id, "sealed")
        assert len(it.views()) == 20

    run(rig, story)


def test_a_request_that_died_with_its_tracker_holds_up_nobody_else(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = rig.answers, []

    def some(number: int) -> None:
        asked.append(number)
        if number > 2:
            answers(number)

    rig.answers = some  # type: ignore[method-assign]

    async def story(it: Coordinator) -> None:
        first = it.begin(None, commit=False)
        await asyncio.sleep(0.1)
        it.tracker_restarted()
        assert "the tracker restarted" in str((await rig.over(first.id, "failed")).why)
        monkeypatch.setattr("lowtide.service.snapshots.coordinator.HEARD_LIMIT_S", 0.2)
        second = it.begin(None, commit=False)
        assert "these workers did not get its request within 0.2 s: 1/0, 1/1" in str(
            (await rig.over(second.id, "failed")).why
        )
        await rig.over(it.begin(None, commit=False).id, "sealed")

    run(rig, story)
