"""Retention: what is kept, and that sweeping takes nothing that is needed, whatever goes on beside it."""

import dataclasses
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lowtide_snapshots.commits import retention
from lowtide_snapshots.commits.choice import choose, manifest_of
from lowtide_snapshots.commits.log import Commit, Restored, utc
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.commits.retention import Rule, Swept, bases, plan, sweep
from lowtide_snapshots.commits.verification import verify
from lowtide_snapshots.errors import CommitNeeded, NoGoodCommit, NoSuchCommit, RecordRefused
from lowtide_snapshots.stores import StoreSetting, open_store

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def nobody(_done: int, _total: int) -> None:
    """Gets nothing."""


def commit(tick: int, age_s: float, name: str | None = None) -> Commit:
    at = utc(NOW - datetime.timedelta(seconds=age_s))
    return Commit(tick, f"000001-{tick:04d}", name, f"j/manifests/{tick:015d}-000001-{tick:04d}.json", "", 1, at)


@pytest.mark.parametrize(
    ("rule", "dropped"),
    [
        (Rule(9), []),
        (Rule(3), [10]),
        (Rule(1), [10, 30, 40]),
        (Rule(9, 250), [10]),
        (Rule(9, 100), [10, 30]),
        (Rule(9, 99), [10, 30, 40]),
        (Rule(2, 1), [10, 30, 40]),
    ],
)
def test_the_last_and_those_with_a_name_stay_whatever_the_rule(rule: Rule, dropped: list[int]) -> None:
    commits = [commit(10, 300), commit(20, 250, "savepoint"), commit(30, 200), commit(40, 100), commit(50, 50)]
    kept, gone = plan(commits, commits[-1], None, rule, NOW)
    assert [each.tick for each in gone] == dropped
    assert kept == [each for each in commits if each not in gone]
    kept, gone = plan(commits, commits[-1], Restored(1, commits[0]), rule, NOW, based_on={commits[2].id})
    assert [each.tick for each in gone] == [tick for tick in dropped if tick not in (10, 30)]


def test_a_rule_keeps_at_least_one() -> None:
    for keep, age_s in ((0, None), (1, 0.0)):
        with pytest.raises(RecordRefused, match="keep at least one"):
            Rule(keep, age_s)


class Job:
    """A job over a folder, whose snapshots at ticks 10, 20 and 30 are committed; each changes unit 1 alone."""

    def __init__(self, folder: Path, takes: Any) -> None:
        self.folder = folder
        self.store = open_store(StoreSetting(str(folder)))
        self.taker = takes("counts", self.store)
        self.log = MemoryCommitLog("counts")
        self.life = self.log.raise_incarnation()
        self.manifests: list[Any] = []
        for tick in (10, 20, 30):
            self.commit(self.take(tick))

    def take(self, tick: int, *units: int) -> Any:
        units = units or ((1,) if self.manifests else (1, 2))
        base = self.manifests[-1] if self.manifests else None
        return self.taker.take(tick, *units, base=base, life=self.life)

    def commit(self, manifest: Any) -> Commit:
        made: Commit = self.taker.commit(self.log, manifest)
        self.manifests.append(manifest)
        return made

    def names(self) -> set[str]:
        return {entry.name for entry in self.store.names("")}

    def sweep(self, *places: int) -> Swept:
        commits = self.log.commits()
        return sweep(self.log, self.store, [commits[place] for place in places])

    def check(self, *others: Any) -> None:
        """All that is committed, and these, is whole; and nothing else is there."""
        manifests = [choose(self.log, self.store, commit=c.id, progress=nobody).manifest for c in self.log.commits()]
        for manifest in others:
            assert verify(self.store, manifest, nobody) == []
        needed = {each.path for each in (*manifests, *others)}
        needed |= {part.name("counts", 10) for each in (*manifests, *others) for part in each.parts}
        assert self.names() == needed

    def during(self, call: str, act: Callable[[], object], owner: Any = None) -> None:
        """Lets something happen once, before a call of the log's or the store's."""
        owner = owner or self.log
        real = getattr(owner, call)

        def late(*given: Any) -> Any:
            setattr(owner, call, real)
            act()
            return real(*given)

        setattr(owner, call, late)


@pytest.fixture
def job(tmp_path: Path, takes: Any) -> Job:
    return Job(tmp_path / "store", takes)


def test_a_part_that_a_kept_manifest_names_stays(job: Job) -> None:
    first, second, _ = job.manifests
    (old,) = (part for part in first.parts if part.unit == 2)
    size = sum((job.folder / each.path).stat().st_size for each in (first, second))
    size += sum(part.bytes for each in (first, second) for part in each.parts if part.unit == 1)
    assert job.sweep(0, 1) == Swept(commits=2, manifests=2, parts=2, bytes=size)
    assert old.name("counts", 10) in job.names()
    job.check()
    assert job.sweep() == Swept()


def add_deltas(job: Job) -> None:
    """Two more commits, each with a delta of unit 1."""
    for tick in (40, 50):
        job.commit(job.taker.take(tick, 1, base=job.manifests[-1], life=job.life, deltas=True))


def test_what_a_delta_rests_on_stays_as_long_as_the_delta(job: Job) -> None:
    add_deltas(job)
    assert [(part.unit, part.tick, part.since) for part in job.manifests[-1].parts] == [
        (1, 30, None),
        (1, 40, 30),
        (1, 50, 40),
        (2, 10, None),
    ]
    assert job.sweep(0, 1, 2, 3).commits == 4
    job.check()
    job.commit(job.take(60, 1))
    assert (job.sweep(0).parts, len(job.names())) == (3, 3), "a whole part takes the place of all three"
    job.check()


def test_a_sweep_that_keeps_the_newest_part_of_a_unit_alone_is_found(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation."""

    def newest_alone(*given: Any) -> Any:
        manifest = manifest_of(*given)
        return dataclasses.replace(manifest, parts=tuple(parts[-1] for parts in manifest.by_unit().values()))

    add_deltas(job)
    monkeypatch.setattr(retention, "manifest_of", newest_alone)
    job.sweep(0, 1, 2, 3)
    with pytest.raises(NoGoodCommit):
        job.check()


def test_what_never_was_committed_goes_once_it_never_can_be(job: Job) -> None:
    late, early = job.take(40, 1, 2), job.take(25, 1)
    job.folder.joinpath("counts/parts/counts/notes.txt").write_text("not ours")
    assert job.sweep().parts == 1
    assert early.path not in job.names()
    job.life = job.log.raise_incarnation()
    running = job.take(41, 1)
    assert (job.sweep().parts, late.path in job.names()) == (2, False)
    job.commit(running)
    job.store.delete(["counts/parts/counts/notes.txt"])
    job.check()


def test_another_job_of_the_same_store_is_left_alone(job: Job, takes: Any) -> None:
    other = takes("counts2", job.store).take(1, 1)
    job.sweep(0, 1)
    assert other.path in job.names()
    assert verify(job.store, other, nobody) == []


def test_a_sweep_that_was_ended_in_the_middle_is_finished_by_the_next(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in ("get", "names", "delete"):
        with monkeypatch.context() as patch:
            patch.setattr(job.store, call, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                job.sweep(*([0] if call == "get" else []))
    assert job.sweep().manifests == 1
    job.check()


@pytest.mark.parametrize("call", ["drop", "incarnation", "last", "commits"])
def test_a_snapshot_that_is_committed_during_a_sweep_keeps_its_parts(job: Job, call: str) -> None:
    running = job.take(40)
    job.during(call, lambda: job.commit(running))
    job.sweep(0, 1) if call != "commits" else sweep(job.log, job.store, job.log.commits()[:2])
    job.check()


@pytest.mark.parametrize("call", ["drop", "incarnation", "last", "names", "reserved", "commits", "delete"])
@pytest.mark.parametrize("begun", [False, True])
def test_an_overtaken_snapshot_keeps_its_parts_and_its_base(job: Job, call: str, begun: bool) -> None:
    """R17: one with a reservation, at 35 below the last commit, is swept neither before its commit nor after it."""
    base, identity = job.manifests[-1], f"{job.life:06d}-0004"
    taken: list[Any] = []

    def begin() -> None:
        job.log.reserve(job.life, identity, [base.id])
        taken.append(job.take(35))
        assert taken[0].id == identity

    def end() -> None:
        if not taken:
            begin()
        if not job.log.commits()[-1].tick > 35:
            job.commit(job.take(40))
        job.commit(taken[0])

    if begun:
        begin()
        job.commit(job.take(40))
        assert job.sweep() == Swept(), "it runs"
        assert bases(job.log, job.store) >= {base.id}
        with pytest.raises(CommitNeeded):
            job.log.drop([job.log.commits()[2]])
    job.during(call, end, job.store if call in ("names", "delete") else job.log)
    job.sweep(0, 1)
    if len(job.log.commits()) == 4:
        job.sweep(0, 1)
    end()
    job.check()


@pytest.mark.parametrize("call", ["names", "get", "delete"])
def test_a_snapshot_that_runs_during_a_sweep_keeps_its_parts(job: Job, call: str) -> None:
    taken: list[Any] = []
    job.during(call, lambda: taken.append(job.take(40)), job.store)
    job.sweep(0, 1)
    job.check(*taken)
    job.commit(taken[0])
    job.sweep(0)
    job.check()


@pytest.mark.parametrize(("call", "begun"), [("names", True), ("names", False), ("last", True), ("commits", True)])
def test_what_is_committed_after_a_rewind_during_a_sweep_stays(job: Job, call: str, begun: bool) -> None:
    """R17: a later life goes on from T 10, and its snapshot at 25 is below the commit that the sweep has read."""

    def begin() -> None:
        job.life = job.log.raise_incarnation()

    if begun:
        begin()

    def rewound() -> None:
        if not begun:
            begin()
        job.log.rewind(job.life, job.log.commits()[0])
        job.manifests[1:] = []
        job.commit(job.take(25))

    job.during(call, rewound, job.store if call == "names" else job.log)
    sweep(job.log, job.store, [])
    assert [commit.tick for commit in job.log.commits()] == [10, 25]
    for commit in job.log.commits():
        found = choose(job.log, job.store, commit=commit.id, progress=nobody).manifest
        assert verify(job.store, found, nobody) == []


def test_a_restore_that_comes_before_a_sweep_keeps_its_commit(job: Job) -> None:
    choice = choose(job.log, job.store, commit=job.manifests[0].id, progress=nobody)
    job.during("drop", lambda: job.log.set_restored(job.life, choice.commit))
    before = job.names()
    with pytest.raises(CommitNeeded):
        job.sweep(0)
    assert job.names() == before


def test_a_restore_that_comes_after_a_sweep_chooses_again(job: Job) -> None:
    choice = choose(job.log, job.store, commit=job.manifests[0].id, progress=nobody)
    job.sweep(0)
    with pytest.raises(NoSuchCommit, match="choose another"):
        job.log.set_restored(job.life, choice.commit)


def test_what_sealed_snapshots_rest_on_is_known(job: Job) -> None:
    assert bases(job.log, job.store) == set()
    job.take(25)
    sealed = job.take(40)
    (job.folder / "counts/manifests/000000000000500-000001-0099.json").write_text("{}")
    assert bases(job.log, job.store) == {job.manifests[-1].id} == {sealed.base}
    job.log.raise_incarnation()
    assert bases(job.log, job.store) == set()


def test_while_a_kept_manifest_is_damaged_no_part_goes(job: Job) -> None:
    (job.folder / job.manifests[1].path).write_text("{}")
    swept = job.sweep(0)
    assert (swept.commits, swept.manifests, swept.parts) == (1, 1, 0)
    ((damaged, why),) = swept.unreadable
    assert (damaged.tick, "SHA-256" in why) == (20, True)
    assert job.sweep(0).parts == 2
    job.check()


def test_a_base_that_another_sweep_drops_while_commits_are_read_does_not_hide_who_rests_on_it(job: Job) -> None:
    running = job.take(40)
    names = job.log._nodes.children

    def late(path: str) -> list[str] | None:
        found = names(path)
        job.log._nodes.children = names  # type: ignore[method-assign]
        commits = job.log.commits()
        job.commit(running)
        job.log.drop(commits)
        return found

    job.during("last", lambda: setattr(job.log._nodes, "children", late))
    assert job.sweep().parts == 3
    job.check()
