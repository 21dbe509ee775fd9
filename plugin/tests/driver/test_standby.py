"""When a standby takes the lease, waits on, or ends: by what the leader has left, on a real ZooKeeper."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide.driver.standby import RESTART_LIMIT_S, Sequel, Waiting, sequel
from lowtide.errors import FlowError
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.layout import Layout
from lowtide_snapshots.job.life import Life

LEADER = "process 1 on there"
LAYOUT = Layout("f1", 2, 4, 8, 1, "local[8]", {"job.slack_ms": "2"})
FAULT, LOSS = Cause("flow", "a function raised"), Cause("loss", "worker 1/0 died")


def life(phase: str, number: int = 3, driver: str = LEADER, **more: Any) -> Life:
    return Life.of({"incarnation": number, "phase": phase, "driver": driver, **more})


@pytest.mark.parametrize(
    ("leader", "note", "free_s", "does"),
    [
        pytest.param(None, None, 0.0, Sequel.TAKE, id="nobody has ever run the job"),
        pytest.param(None, life("stopped"), 0.0, Sequel.TAKE, id="a stopped job is started by its standbys"),
        pytest.param(LEADER, life("running"), 0.0, Sequel.TAKE, id="killed"),
        pytest.param(LEADER, None, 0.0, Sequel.TAKE, id="killed before its first life"),
        pytest.param(LEADER, life("stopped", 2), 0.0, Sequel.TAKE, id="killed before its life said anything"),
        pytest.param(LEADER, life("stopped", driver="another"), 0.0, Sequel.TAKE, id="killed with the lease alone"),
        pytest.param(LEADER, life("stopped"), 0.0, Sequel.END, id="stopped or finished"),
        pytest.param(LEADER, life("stopping"), 0.0, Sequel.END, id="killed while it was stopped"),
        pytest.param(LEADER, life("stopped", handed_over=True), 0.0, Sequel.TAKE, id="handed over"),
        pytest.param(
            LEADER, life("stopping", handed_over=True), 0.0, Sequel.TAKE, id="killed while it was handed over"
        ),
        pytest.param(
            LEADER,
            life("stopped", handed_over=True, finished=True),
            0.0,
            Sequel.END,
            id="finished as it was handed over",
        ),
        pytest.param(
            LEADER, life("failed", cause=asdict(FAULT), again=False), 0.0, Sequel.END, id="a fault of the flow"
        ),
        pytest.param(LEADER, life("failed", cause=asdict(LOSS), again=False), 0.0, Sequel.TAKE, id="it gave up"),
        pytest.param(LEADER, life("failed", cause=asdict(LOSS), again=True), 0.0, Sequel.WAIT, id="it begins again"),
        pytest.param(LEADER, life("failed", cause=asdict(LOSS)), 0.0, Sequel.WAIT, id="it may begin again"),
        pytest.param(
            LEADER, life("failed", cause=asdict(LOSS), again=True), RESTART_LIMIT_S, Sequel.TAKE, id="it did not"
        ),
    ],
)
def test_what_a_leader_left_decides_what_follows(
    leader: str | None, note: Life | None, free_s: float, does: Sequel
) -> None:
    assert sequel(leader, note, 3, free_s) is does


class Program:
    """A standby in a thread.

    Attributes:
        said: What it has said.
        took: Whether it took the lease; None until its wait is over.
    """

    def __init__(self, place: Any, name: str, layout: Layout = LAYOUT) -> None:
        self.store = place.open()
        self.said: list[str] = []
        self.took: bool | None = None
        self.error: BaseException | None = None
        self.waiting = Waiting(self.store, name, layout, self.said.append)
        self.asked = threading.Event()
        self.over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.waiting.show(ready=True)
            self.took = self.waiting.take(lambda: not self.asked.is_set())
        except FlowError as error:
            self.error = error
        finally:
            self.over.set()

    def stands_by(self, place: Any) -> None:
        assert place.eventually(lambda: any("standing by" in line for line in self.said))


def standing_by(place: Any) -> Program:
    standby = Program(place, "the standby")
    standby.stands_by(place)
    return standby


@pytest.mark.zookeeper
def test_a_standby_takes_the_lease_of_a_leader_that_is_gone(place: Any) -> None:
    leader, seen = place.open(), place.open()
    place.living(leader, LEADER)
    standby = standing_by(place)
    assert [each.holder for each in seen.standbys()] == ["the standby"]
    leader.close()
    assert standby.over.wait(HANGS_S)
    assert standby.took
    assert seen.leader() == ("the standby", LAYOUT)
    assert seen.standbys() == []
    assert standby.store.raise_incarnation() == 2
    assert standby.said == [f"standing by: the job is run by {LEADER}", f"taking over from {LEADER}"]


@pytest.mark.zookeeper
def test_of_two_standbys_one_wins_and_the_other_waits_for_it(place: Any) -> None:
    leader, seen = place.open(), place.open()
    place.living(leader, LEADER)
    both = Program(place, "one"), Program(place, "another")
    for each in both:
        each.stands_by(place)
    leader.close()
    assert place.eventually(lambda: any(each.took for each in both))
    winner, loser = both if both[0].took else both[::-1]
    winner.store.raise_incarnation()
    winner.store.set_life(2, {"incarnation": 2, "phase": "running", "driver": seen.holder()})
    assert place.eventually(lambda: len(loser.said) == 2)
    assert "standing by" in loser.said[-1]
    assert not loser.over.is_set()
    winner.store.close()
    assert loser.over.wait(HANGS_S)
    assert loser.took
    assert loser.store.raise_incarnation() == 3


@pytest.mark.zookeeper
def test_standbys_of_a_job_that_was_stopped_end(place: Any) -> None:
    leader = place.open()
    number = place.living(leader, LEADER)
    standby = standing_by(place)
    leader.set_life(number, {"incarnation": number, "phase": "stopped", "driver": LEADER})
    leader.close()
    assert standby.over.wait(HANGS_S)
    assert standby.took is False
    assert f"life {number}, of {LEADER}, has stopped" in standby.waiting.ended
    assert place.open().holder() is None


@pytest.mark.zookeeper
def test_a_job_that_is_stopped_while_a_standby_rehearses_is_not_run_on_by_it(place: Any) -> None:
    leader = place.open()
    number = place.living(leader, LEADER)
    standby = Waiting(place.open(), "the standby", LAYOUT, place.nobody)
    standby.refuse_other_leader()
    leader.set_life(number, {"incarnation": number, "phase": "stopped", "driver": LEADER})
    leader.close()
    assert not standby.take(lambda: True)
    assert f"life {number}, of {LEADER}, has stopped" in standby.ended


@pytest.mark.zookeeper
def test_a_standby_ends_when_it_is_asked_to(place: Any) -> None:
    leader = place.open()
    place.living(leader, LEADER)
    standby = standing_by(place)
    standby.asked.set()
    assert standby.over.wait(HANGS_S)
    assert standby.took is False
    assert standby.waiting.ended == ""


@pytest.mark.zookeeper
def test_a_standby_of_another_flow_or_conf_is_refused(place: Any) -> None:
    place.open().take_lease(LEADER, 0, place.nobody, LAYOUT)
    other = Layout("f1", 2, 4, 8, 1, "local[8]", {"job.slack_ms": "5"})
    with pytest.raises(FlowError, match=r"process 1 on there has other: job\.slack_ms \(2 there, 5 here\)"):
        Waiting(place.open(), "the standby", other, place.nobody).refuse_other_leader()
    standby = Program(place, "the standby", other)
    assert standby.over.wait(HANGS_S)
    assert isinstance(standby.error, FlowError)
    Waiting(place.open(), "the standby", LAYOUT, place.nobody).refuse_other_leader()


@pytest.mark.zookeeper
def test_a_standby_whose_session_expires_goes_on_waiting(place: Any) -> None:
    leader, seen = place.open(), place.open()
    place.living(leader, LEADER)
    standby = standing_by(place)
    place.end_session(place.session(standby.store))
    assert place.eventually(lambda: [each.holder for each in seen.standbys()] == ["the standby"])
    leader.close()
    assert standby.over.wait(HANGS_S)
    assert standby.took
