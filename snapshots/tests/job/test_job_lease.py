"""The lease and the incarnation on a real ZooKeeper: two drivers, killed drivers, sessions that expire."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_snapshots.errors import Fenced, LeaseTaken

pytest.importorskip("kazoo", reason="kazoo is an extra")

from lowtide_snapshots.job.store import JobStore

pytestmark = pytest.mark.zookeeper

LONG_S = 10.0
HOLDER = """
import sys, time
from lowtide_snapshots.job.store import JobStore

store = JobStore(sys.argv[1], sys.argv[2], session_timeout_s=2.0).open()
store.take_lease("the one that is killed", 0, print)
print("held", flush=True)
time.sleep(60)
"""


def test_of_two_drivers_one_leads_and_the_other_hears_whom_it_waits_for(place: Any) -> None:
    heard: list[str] = []
    first, second = place.open(), place.open()
    place.living(first, "the first")
    started = time.monotonic()
    with pytest.raises(LeaseTaken, match=r"(?s)run by the first.*what to do: stop that one") as raised:
        second.take_lease("the second", 0.5, heard.append)
    assert raised.value.holder == "the first"
    assert time.monotonic() - started >= 0.5
    assert len(heard) == 1
    assert "the first" in heard[0]
    assert first.holder() == second.holder() == "the first"
    with pytest.raises(LeaseTaken, match="does not hold the lease"):
        second.raise_incarnation()
    assert second.incarnation() == 1


def test_the_lease_of_a_driver_that_ends_is_free_at_once(place: Any) -> None:
    with JobStore(place.hosts, place.job, session_timeout_s=LONG_S) as first:
        place.living(first)
        assert place.open().alive()
    second = place.open()
    assert not second.alive()
    second.take_lease("the second", 0, place.nobody)
    assert second.raise_incarnation() == 2


def test_the_lease_of_a_driver_that_was_killed_comes_free(place: Any) -> None:
    command = [sys.executable, "-c", HOLDER, place.hosts, place.job]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGKILL)
    waited: list[str] = []
    mine = place.open()
    mine.take_lease("the next", HANGS_S, waited.append)
    assert len(waited) == 1
    assert "the one that is killed" in waited[0]
    assert mine.holder() == "the next"


def test_after_an_expired_session_the_lease_is_taken_again_if_the_life_is_ours(place: Any) -> None:
    mine = place.open()
    life = place.living(mine, "the same")
    place.expire(mine)
    assert place.open().holder() is None
    mine.keep_lease()
    assert place.open().holder() == "the same"
    mine.publish(life, 5)


def test_after_an_expired_session_a_life_is_over_if_another_leads(place: Any) -> None:
    mine, other = place.open(), place.open()
    place.living(mine)
    place.expire(mine)
    other.take_lease("the other", 0, place.nobody)
    with pytest.raises(Fenced, match="the other holds its lease"):
        mine.keep_lease()
    other.raise_incarnation()
    other.close()
    with pytest.raises(Fenced, match="incarnation 2 is the current one"):
        mine.keep_lease()
    assert not place.open().alive()


def test_a_lease_that_was_taken_away_is_noticed(place: Any) -> None:
    mine = place.open()
    place.living(mine)
    mine._zk._client.delete(mine._paths.lease)
    place.living(place.open())

    def noticed() -> bool:
        try:
            mine.keep_lease()
        except Fenced:
            return True
        return False

    assert place.eventually(noticed)


def test_a_lease_is_not_taken_again_by_a_life_that_is_over(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = place.open(), place.open()
    place.living(mine)
    place.expire(mine)

    def whole_life() -> None:
        place.living(other)
        other.close()

    place.before_commit(monkeypatch, mine, whole_life)
    with pytest.raises(Fenced, match="incarnation 2"):
        mine.keep_lease()
    assert not place.open().alive()


def test_the_incarnation_is_raised_only_with_the_lease(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = place.open()
    mine.take_lease("mine", 0, place.nobody)
    place.before_commit(monkeypatch, mine, lambda: mine._zk._client.delete(mine._paths.lease))
    with pytest.raises(LeaseTaken, match="nobody does"):
        mine.raise_incarnation()
    assert mine.incarnation() == 0


def test_a_lease_of_our_own_session_that_is_being_ended_is_waited_for(place: Any) -> None:
    mine, ended = place.open(), place.open()
    place.living(mine)
    ended._lease._token = mine._lease._token
    place.expire(mine)
    ended.take_lease("test", 0, place.nobody)
    mine.keep_lease()
    with pytest.raises(LeaseTaken, match="does not hold the lease"):
        mine.raise_incarnation()
    ended.close()
    mine.keep_lease()
    assert mine.raise_incarnation() == 2


def test_a_store_that_was_closed_can_be_opened_again(place: Any) -> None:
    mine = place.open()
    assert place.living(mine) == 1
    mine.close()
    mine.close()
    mine.open()
    assert place.living(mine) == 2
