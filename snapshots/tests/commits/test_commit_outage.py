"""Commits over connections whose answers are lost, a ZooKeeper that is away, and sessions that end."""

from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_snapshots.commits.log import Restored, ZooKeeperCommitLog
from lowtide_snapshots.errors import CommitUnknown, Fenced, WriteUnknown, ZooKeeperUnavailable

pytest.importorskip("kazoo", reason="kazoo is an extra")

pytestmark = pytest.mark.zookeeper

LONG_S = 10.0


@pytest.mark.parametrize("drop", ["request", "answer"])
def test_what_is_written_while_an_answer_is_lost_is_written_once(place: Any, takes: Any, drop: str) -> None:
    taker = takes(place.job)
    with place.proxy() as proxy:
        store = place.open(hosts=proxy.hosts, session_timeout_s=LONG_S)
        log, life = ZooKeeperCommitLog(store), place.living(store)
        made = []
        for tick in (10, 20, 30):
            proxy.drop = drop
            made.append(taker.commit(log, taker.take(tick)))
        proxy.drop = drop
        log.set_restored(life, made[1])
        proxy.drop = drop
        log.drop(made[:1])
        assert proxy.dropped == 5
        other = ZooKeeperCommitLog(place.open())
        assert (other.commits(), other.last(), other.restored()) == (made[1:], made[2], Restored(life, made[1]))
        paths = (store._paths.last_commit, store._paths.restored)
        assert [node.version for node in store._zk.get_all(paths)] == [2, 0]


@pytest.mark.parametrize("drop", ["request", "answer"])
def test_a_commit_that_nobody_answers_is_unknown_until_it_is_asked_again(place: Any, takes: Any, drop: str) -> None:
    taker = takes(place.job)
    with place.proxy() as proxy:
        store = place.open(hosts=proxy.hosts, session_timeout_s=LONG_S)
        log, life = ZooKeeperCommitLog(store), place.living(store)
        sealed = taker.take(10)
        place.waits(store, 0.7)
        proxy.drop, proxy.leaves = drop, True
        with pytest.raises(CommitUnknown, match=r"(?s)unknown whether snapshot 000001-0001 .*commit it again"):
            taker.commit(log, sealed)
        with pytest.raises(ZooKeeperUnavailable) as raised:
            taker.commit(log, sealed)
        assert not isinstance(raised.value, WriteUnknown)
        seen = ZooKeeperCommitLog(place.open()).last()
        assert (seen is not None) == (drop == "answer")
        proxy.away = False
        place.waits(store, HANGS_S)
        assert place.eventually(lambda: store._zk.connected)
        made = taker.commit(log, sealed)
        assert seen in (None, made)
        assert log.commits() == [made]
        assert taker.commit(log, taker.take(20, life=life)) == log.last()


def test_what_was_unknown_is_never_done_once_another_life_has_begun(place: Any, takes: Any) -> None:
    taker = takes(place.job)
    with place.proxy() as proxy:
        store = place.open(hosts=proxy.hosts)
        log, _ = ZooKeeperCommitLog(store), place.living(store)
        sealed, session = taker.take(10), place.session(store)
        place.waits(store, 0.7)
        proxy.drop, proxy.leaves = "request", True
        with pytest.raises(CommitUnknown):
            taker.commit(log, sealed)
        place.end_session(session)
        new = place.open()
        place.living(new)
        proxy.away = False
        place.waits(store, HANGS_S)
        assert place.eventually(lambda: store._zk.connected)
        with pytest.raises(Fenced):
            taker.commit(log, sealed)
        assert ZooKeeperCommitLog(new).commits() == []


def test_a_session_that_ended_neither_fences_a_life_nor_ends_a_watch(place: Any, takes: Any) -> None:
    taker = takes(place.job)
    heard: list[Any] = []
    store = place.open()
    log, _ = ZooKeeperCommitLog(store), place.living(store)
    log.watch(heard.append)
    one = taker.commit(log, taker.take(10))
    assert place.eventually(lambda: heard == [one])
    place.expire(store)
    assert log.commits() == [one]
    two = taker.commit(log, taker.take(20))
    assert place.eventually(lambda: heard == [one, two])
    place.expire(store)
    three = taker.commit(ZooKeeperCommitLog(place.open()), taker.take(30))
    assert place.eventually(lambda: heard == [one, two, three])
