"""Standbys on real Spark, Kafka and ZooKeeper: the driver is killed, one that waits takes over, and no byte changes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.job_program import Program
from tests.settings import settings_of
from tests.shop import Load, Shop
from tests.waiting import HANGS_S, wait_until

from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide_snapshots.job.store import JobStore

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
SESSION_S = 20.0
"""A killed driver's session would live on for so long; its service frees the lease before."""


class Watched:
    """One shop's job, its programs, and its place in ZooKeeper."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.shop = shop
        self._folder = folder
        self._begun: list[Program] = []
        self.place: JobStore = ZooKeeperAccess.of(shop.conf.zookeeper).store(shop.name).open()

    def program(self, name: str, *, standby: bool = True) -> Program:
        """Start a program, in a folder of its own as on a machine of its own."""
        self._begun.append(Program(self.shop, self._folder / name, standby=standby))
        return self._begun[-1]

    def close(self) -> None:
        for program in self._begun:
            program.close()
        self.place.close()


@pytest.fixture(name="watched")
def _watched(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Iterator[Callable[[str], Watched]]:
    made: list[Watched] = []

    def make(name: str) -> Watched:
        settings = settings_of(kafka, zookeeper, tmp_path, 8) | {"zookeeper.session_timeout_s": SESSION_S}
        made.append(Watched(Shop.open(name, kafka, settings, letters=2), tmp_path / name))
        return made[-1]

    yield make
    for watched in made:
        watched.close()


def kill(program: Program) -> None:
    os.kill(program.process.pid, signal.SIGKILL)
    program.process.wait()


def test_standbys_take_over_one_after_the_other_and_the_output_is_the_oracles(
    watched: Callable[[str], Watched],
) -> None:
    """Two wait; the first driver is killed, then the winner: each time a program that waited goes on at once."""
    job = watched("standbys")
    leader = job.program("leader", standby=False)
    first = leader.running()
    waiting = [job.program("one"), job.program("another")]
    for program in waiting:
        program.waiting()
    seen = leader.client
    wait_until(lambda: sum(each.ready for each in seen.status().standbys) == 2, HANGS_S, "two standbys on the page")
    with Load(job.shop, 100_000):
        leader.moved()
        kill(leader)
        wait_until(lambda: any(map(leads, waiting)), HANGS_S, "a winner")
        (winner,) = filter(leads, waiting)
        second = winner.running()
        winner.moved()
    (loser,) = (each for each in waiting if each is not winner)
    assert (second.incarnation or 0) > (first.incarnation or 0)
    assert loser.waiting().phase == "standby"
    assert "freeing its lease" in leader.jobs.log_file.read_text(errors="replace")
    assert job.shop.judge.right()

    with Load(job.shop, 200_000):
        winner.moved()
        kill(winner)
        assert (loser.running().incarnation or 0) > (second.incarnation or 0)
        loser.moved()
    assert job.shop.judge.right()
    loser.stop()
    assert job.shop.judge.right()
    assert job.place.standbys() == []


def leads(program: Program) -> bool:
    state = program.jobs.state()
    return state is not None and state.phase in ("starting", "running")


@pytest.mark.nightly
def test_a_stop_ends_the_standbys_and_another_flow_cannot_stand_by(watched: Callable[[str], Watched]) -> None:
    job = watched("stopped")
    leader = job.program("leader", standby=False)
    leader.running()
    standby = job.program("standby")
    standby.waiting()
    other = Watched(job.shop.but(job__grouping="ordered"), job._folder)
    try:
        refused = other.program("refused")
        assert refused.ended() != 0
        assert "job.grouping" in refused.log()
    finally:
        other.close()
    leader.stop()
    assert standby.ended() == 0
    state = standby.jobs.state()
    assert state is not None
    assert (state.phase, "has stopped" in str(state.cause)) == ("stopped", True)
    assert job.place.holder() is None
