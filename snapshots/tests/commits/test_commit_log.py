"""The commit log, one contract in memory and on a real ZooKeeper: what a commit demands, two at once, zombies."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from lowtide_snapshots.commits.log import CommitLog, Reservation, Restored
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.errors import (
    CommitNeeded,
    CommitRefused,
    EntryDiffers,
    Fenced,
    NoSuchCommit,
    RecordDamaged,
)
from lowtide_snapshots.zookeeper.memory_nodes import MemoryNodes
from lowtide_snapshots.zookeeper.nodes import Create


class CommitLogContract:
    """The contract of every commit log.

    A subclass has the fixture `logs`, with `job`, `open()`, `live()` and `before_commit(log, act)`.
    """

    @pytest.fixture
    def taker(self, logs: Any, takes: Any) -> Any:
        return takes(logs.job)

    def test_the_newest_commit_is_the_last_and_everybody_sees_it(self, logs: Any, taker: Any) -> None:
        assert (logs.open().commits(), logs.open().last(), logs.open().incarnation()) == ([], None, 0)
        log, life = logs.open(), logs.live()
        made = [taker.commit(log, taker.take(tick, name=name)) for tick, name in ((9, None), (10, "before 2.0"))]
        other = logs.open()
        assert (other.commits(), other.last(), other.incarnation()) == (made, made[1], life)
        assert (made[1].tick, made[1].name, made[1].min_time_ms, made[1].incarnation) == (10, "before 2.0", 100, life)

    @pytest.mark.parametrize("tick", [5, 9])
    def test_a_commit_has_to_be_above_the_last_one(self, logs: Any, taker: Any, tick: int) -> None:
        log, _ = logs.open(), logs.live()
        late = taker.take(tick)
        last = taker.commit(log, taker.take(9))
        with pytest.raises(CommitRefused, match=rf"at tick {tick}, .* above the last commit, {last.id} at tick 9"):
            taker.commit(log, late)
        assert log.commits() == [last]

    def test_a_commit_that_was_done_is_done_whoever_asks_and_whenever(self, logs: Any, taker: Any) -> None:
        log, _ = logs.open(), logs.live()
        first, second = taker.take(9), taker.take(12)
        made = taker.commit(log, first)
        assert taker.commit(logs.open(), first) == made
        taker.commit(log, second)
        logs.live()
        assert taker.commit(log, first) == made
        with pytest.raises(EntryDiffers, match="two snapshots have one id"):
            log.commit(first, "0" * 64)
        assert [commit.tick for commit in log.commits()] == [9, 12]

    def test_an_older_life_commits_nothing_and_is_restored_from_nothing(self, logs: Any, taker: Any) -> None:
        log, old = logs.open(), logs.live()
        kept = taker.commit(log, taker.take(9, life=old))
        sealed = taker.take(12, life=old)
        new = logs.live()
        for zombie in (log, logs.open()):
            with pytest.raises(Fenced, match=r"incarnation 1 .* is over: incarnation 2 is the current one"):
                taker.commit(zombie, sealed)
            with pytest.raises(Fenced):
                zombie.set_restored(old, kept)
        assert (log.commits(), log.restored()) == ([kept], None)
        taker.commit(log, taker.take(10, life=new))

    def test_the_snapshot_of_another_job_is_not_committed(self, logs: Any, takes: Any) -> None:
        log, _ = logs.open(), logs.live()
        with pytest.raises(CommitRefused, match="is of job 'other'"):
            takes("other").commit(log, takes("other").take(9))

    def test_a_snapshot_goes_with_the_commit_it_is_based_on(self, logs: Any, taker: Any) -> None:
        log, _ = logs.open(), logs.live()
        base = taker.take(9)
        early, late = taker.take(12, base=base), taker.take(20, base=base)
        dropped = taker.commit(log, base)
        taker.commit(log, early)
        log.drop([dropped])
        with pytest.raises(CommitRefused, match=f"needs parts of commit {base.id}, which was dropped"):
            taker.commit(log, late)
        assert taker.commit(log, taker.take(21, base=early)) == log.last()

    def test_neither_the_last_commit_nor_the_restored_one_is_dropped(self, logs: Any, taker: Any) -> None:
        log, life = logs.open(), logs.live()
        one, two, three = (taker.commit(log, taker.take(tick)) for tick in (9, 12, 15))
        log.set_restored(life, two)
        assert log.restored() == Restored(life, two)
        with pytest.raises(CommitNeeded, match="it is the last commit"):
            log.drop([one, three])
        with pytest.raises(CommitNeeded, match="the current life began from it"):
            log.drop([one, two])
        assert log.commits() == [one, two, three]
        log.drop([one])
        log.drop([one])
        assert (log.commits(), log.last()) == ([two, three], three)
        log.set_restored(life, None)
        log.drop([two])
        with pytest.raises(NoSuchCommit, match="choose another"):
            log.set_restored(life, two)
        assert (log.commits(), log.restored()) == ([three], Restored(life, None))

    def test_many_are_dropped_at_once(self, logs: Any, taker: Any) -> None:
        log, _ = logs.open(), logs.live()
        made = [taker.commit(log, taker.take(tick)) for tick in range(4)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lowtide_snapshots.commits.log.DROP_AT_ONCE", 2)
            log.drop(made[:3])
        assert log.commits() == made[3:]

    def test_whoever_watches_hears_of_each_commit_once(self, logs: Any, taker: Any) -> None:
        log, _ = logs.open(), logs.live()
        first: list[Any] = []
        logs.open().watch(first.append)
        one = taker.commit(log, taker.take(9))
        assert logs.eventually(lambda: first == [one])
        second: list[Any] = []
        logs.open().watch(second.append)
        assert logs.eventually(lambda: second == [one])
        two = taker.commit(log, taker.take(12))
        log.drop([one])
        assert logs.eventually(lambda: first == [one, two] and second == [one, two])

    # A snapshot with a reservation is committed beside a newer one of its life.

    @pytest.mark.parametrize("tick", [9, 12])
    def test_one_that_is_overtaken_is_kept_beside_the_last(self, logs: Any, taker: Any, tick: int) -> None:
        log, life = logs.open(), logs.live()
        base = taker.commit(log, taker.take(5))
        heard: list[Any] = []
        logs.open().watch(heard.append)
        assert logs.eventually(lambda: heard == [base])
        late = taker.take(tick, name="before 2.0")
        log.reserve(life, late.id, [base.id, "000001-9999"])
        assert log.reserved() == [Reservation(late.id, (base.id,))]
        last = taker.commit(log, taker.take(12))
        assert logs.eventually(lambda: heard == [base, last])
        made = taker.commit(log, late)
        assert taker.commit(logs.open(), late) == made
        assert logs.eventually(lambda: heard == [base, last, last]), "a watcher looks again"
        assert (log.last(), log.reserved()) == (last, [])
        assert {commit.id for commit in log.commits()} == {base.id, made.id, last.id}
        log.drop([base, made])
        assert log.commits() == [last]
        assert taker.commit(log, taker.take(20)) == log.last()

    def test_one_that_is_not_overtaken_becomes_the_last(self, logs: Any, taker: Any) -> None:
        log, life = logs.open(), logs.live()
        sealed = taker.take(9)
        log.reserve(life, sealed.id, [])
        assert (taker.commit(log, sealed), log.reserved()) == (log.last(), [])

    def test_a_reservation_that_is_given_up_or_of_another_life_is_void(self, logs: Any, taker: Any) -> None:
        log, life = logs.open(), logs.live()
        base = taker.commit(log, taker.take(5))
        first, second = taker.take(9), taker.take(10)
        for each in (first, second):
            log.reserve(life, each.id, [base.id])
        taker.commit(log, taker.take(12))
        log.release(life, first.id)
        log.release(life, first.id)
        with pytest.raises(CommitRefused, match=r"at tick 9, .* at tick 12"):
            taker.commit(log, first)
        new = logs.live()
        with pytest.raises(Fenced):
            taker.commit(log, second)
        for act in (log.release, lambda *given: log.reserve(*given, [])):
            with pytest.raises(Fenced):
                act(life, second.id)
        assert log.reserved() == []
        log.drop([base])
        other = taker.take(11, life=new)
        log.reserve(new, other.id, [])
        with pytest.raises(CommitRefused, match=r"at tick 11, .* at tick 12"):
            taker.commit(log, other)  # The last one is of another life, which may have been another past.

    def test_what_a_snapshot_under_way_may_rest_on_is_not_dropped(self, logs: Any, taker: Any) -> None:
        log, other, life = logs.open(), logs.open(), logs.live()
        one, two, three = (taker.take(tick) for tick in (5, 6, 7))
        first, second, _ = (taker.commit(log, each) for each in (one, two, three))
        late = taker.take(8, base=two)
        logs.before_commit(log, lambda: other.reserve(life, late.id, [first.id, second.id]))
        with pytest.raises(CommitNeeded, match=f"snapshot {late.id}, under way, may need it"):
            log.drop([first])
        log.reserve(life, late.id, [second.id])
        log.drop([first])
        taker.commit(log, taker.take(9))
        with pytest.raises(CommitNeeded):
            log.drop([second])
        taker.commit(log, late)
        log.drop([second])
        logs.before_commit(log, lambda: other.drop([taker.commit(other, three)]))
        log.reserve(life, "000001-0077", [three.id])
        assert log.reserved() == [Reservation("000001-0077", ())], "it was dropped meanwhile"

    # Two at once: what happens between the look and the transaction.

    def test_of_two_that_commit_at_once_the_later_time_stays(self, logs: Any, taker: Any) -> None:
        log, other, _ = logs.open(), logs.open(), logs.live()
        lower, higher = taker.take(9), taker.take(12)
        logs.before_commit(log, lambda: taker.commit(other, higher))
        with pytest.raises(CommitRefused, match=r"at tick 9, .* at tick 12"):
            taker.commit(log, lower)
        lower, higher = taker.take(15), taker.take(20)
        logs.before_commit(log, lambda: taker.commit(other, lower))
        taker.commit(log, higher)
        assert [commit.tick for commit in log.commits()] == [12, 15, 20]

    def test_two_that_commit_the_same_at_once_have_committed_it_once(self, logs: Any, taker: Any) -> None:
        log, other, _ = logs.open(), logs.open(), logs.live()
        sealed, made = taker.take(9), []
        logs.before_commit(log, lambda: made.append(taker.commit(other, sealed)))
        assert taker.commit(log, sealed) == made[0] == log.last()
        assert log.commits() == made

    def test_a_life_that_ends_between_its_look_and_its_commit_commits_nothing(self, logs: Any, taker: Any) -> None:
        log, old = logs.open(), logs.live()
        sealed = taker.take(9, life=old)
        logs.before_commit(log, logs.live)
        with pytest.raises(Fenced):
            taker.commit(log, sealed)
        assert (log.commits(), log.last()) == ([], None)

    def test_a_base_that_is_dropped_meanwhile_is_noticed(self, logs: Any, taker: Any) -> None:
        log, other, _ = logs.open(), logs.open(), logs.live()
        base = taker.take(9)
        dropped = taker.commit(log, base)
        taker.commit(log, taker.take(12))
        logs.before_commit(log, lambda: other.drop([dropped]))
        with pytest.raises(CommitRefused, match="which was dropped"):
            taker.commit(log, taker.take(15, base=base))

    def test_a_commit_that_is_restored_from_meanwhile_is_not_dropped(self, logs: Any, taker: Any) -> None:
        log, other, life = logs.open(), logs.open(), logs.live()
        one, two = (taker.commit(log, taker.take(tick)) for tick in (9, 12))
        for start in range(2):
            life = logs.live() if start else life
            logs.before_commit(log, lambda: other.set_restored(life, one))  # noqa: B023
            with pytest.raises(CommitNeeded):
                log.drop([one])
        assert log.commits() == [one, two]

    def test_a_commit_that_is_dropped_meanwhile_is_not_restored_from(self, logs: Any, taker: Any) -> None:
        log, other, life = logs.open(), logs.open(), logs.live()
        one, _ = (taker.commit(log, taker.take(tick)) for tick in (9, 12))
        logs.before_commit(log, lambda: other.drop([one]))
        with pytest.raises(NoSuchCommit):
            log.set_restored(life, one)
        assert log.restored() in (None, Restored(0, None))


class _InMemory:
    def __init__(self) -> None:
        self.job = "counts"
        self._nodes = MemoryNodes()

    def open(self) -> MemoryCommitLog:
        return MemoryCommitLog(self.job, self._nodes)

    def live(self) -> int:
        return self.open().raise_incarnation()

    def before_commit(self, _log: CommitLog, act: Callable[[], object]) -> None:
        commit = self._nodes.commit

        def late(operations: Any) -> bool:
            self._nodes.commit = commit  # type: ignore[method-assign]
            act()
            return commit(operations)

        self._nodes.commit = late  # type: ignore[method-assign]

    @staticmethod
    def eventually(true: Callable[[], object]) -> bool:
        return bool(true())


class _InZooKeeper:
    def __init__(self, place: Any, patch: pytest.MonkeyPatch) -> None:
        self.job = place.job
        self.eventually = place.eventually
        self._place = place
        self._patch = patch
        self._stores: dict[int, Any] = {}

    def open(self) -> CommitLog:
        from lowtide_snapshots.commits.log import ZooKeeperCommitLog

        store = self._place.open()
        log = ZooKeeperCommitLog(store)
        self._stores[id(log)] = store
        return log

    def live(self) -> int:
        with contextlib.ExitStack() as closed:
            store = self._place.open()
            closed.callback(store._zk._client.stop)
            return int(self._place.living(store))

    def before_commit(self, log: CommitLog, act: Callable[[], object]) -> None:
        self._place.before_commit(self._patch, self._stores[id(log)], act)


class TestMemoryCommitLog(CommitLogContract):
    @pytest.fixture
    def logs(self) -> _InMemory:
        return _InMemory()


@pytest.mark.zookeeper
class TestZooKeeperCommitLog(CommitLogContract):
    @pytest.fixture
    def logs(self, place: Any, monkeypatch: pytest.MonkeyPatch) -> _InZooKeeper:
        return _InZooKeeper(place, monkeypatch)

    def test_what_cannot_be_read_is_named(self, logs: _InZooKeeper, place: Any) -> None:
        store = place.open()
        place.living(store)
        path = store._paths.last_commit
        store._zk.write(lambda: [] if store._zk.get(path) else [Create(path, b'{"tick": 9}')])
        with pytest.raises(RecordDamaged, match=r"(?s)id, .* is missing.*last_commit"):
            logs.open().last()
