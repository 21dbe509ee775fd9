"""Standbys on real Spark, Kafka and ZooKeeper: the driver is killed, one that waits takes over, and no byte changes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.job_program import Deaths, Detached, Program
from tests.settings import settings_of
from tests.shop import Load, Shop
from tests.waiting import HANGS_S, wait_until

from lowtide.cli.main import run
from lowtide.cli.snapshot import take
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.service.standbys import NoStandby
from lowtide_snapshots.job.store import JobStore

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
SESSION_S = 20.0
"""A killed driver's session would live on for so long; its service frees the lease before."""
SHORT_SESSION_S = 8.0
"""For programs that die as they wait: they stay on the list of standbys for so long."""
BEFORE_A_LIFE = ("taking over", "asking ZooKeeper", "asking Kafka", "taking the job's lease")
OPENING = ("claiming the sinks", "looking for the commit to begin from", "verifying", "beginning from commit")
STARTING = ("starting the query", "waiting for the workers")
STOPPED = ("taking the job's lease", "claiming the sinks", "waiting for the workers")


class Watched:
    """One shop's job, its programs, and its place in ZooKeeper."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.shop = shop
        self.folder = folder
        self.deaths = Deaths(folder / "deaths")
        self._begun: list[Program] = []
        self.place: JobStore = ZooKeeperAccess.of(shop.conf.zookeeper).store(shop.name).open()

    def program(self, name: str, *, standby: bool = True) -> Program:
        """Start a program, in a folder of its own as on a machine of its own."""
        self._begun.append(Program(self.shop, self.folder / name, standby=standby, deaths=self.deaths))
        return self._begun[-1]

    def close(self) -> None:
        for program in self._begun:
            program.close()
        self.place.close()


@pytest.fixture(name="watched")
def _watched(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def make(name: str, session_s: float = SESSION_S) -> Watched:
        settings = settings_of(kafka, zookeeper, tmp_path, 8) | {"zookeeper.session_timeout_s": session_s}
        made.append(Watched(Shop.open(name, kafka, settings, letters=2), tmp_path / name))
        return made[-1]

    yield make
    for watched in made:
        watched.close()


def kill(program: Program) -> None:
    os.kill(program.process.pid, signal.SIGKILL)
    program.process.wait()


def test_standbys_take_over_one_after_the_other_and_the_output_is_the_oracles(
    watched: Callable[..., Watched],
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
    assert freed(leader)
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
def test_a_stop_ends_the_standbys_and_another_flow_cannot_stand_by(watched: Callable[..., Watched]) -> None:
    job = watched("stopped")
    leader = job.program("leader", standby=False)
    leader.running()
    standby = job.program("standby")
    standby.waiting()
    other = Watched(job.shop.but(job__grouping="ordered"), job.folder)
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


@pytest.mark.nightly
@pytest.mark.parametrize("steps", [BEFORE_A_LIFE, OPENING, STARTING], ids=["before a life", "opening", "starting"])
def test_standbys_die_at_each_step_of_a_take_over_and_another_finishes_it(
    watched: Callable[..., Watched], steps: tuple[str, ...]
) -> None:
    """The leader dies; whoever takes over dies at one step, the next at the next, until one comes through.

    Nobody waits for the end of a session: the services free the leases of the dead, also of those without a life.
    """
    job = watched("steps")
    leader = job.program("leader", standby=False)
    first = leader.running()
    with Load(job.shop):
        leader.moved()
        take(leader.client, job.shop.name, None)
    waiting = [job.program(f"standby-{number}") for number in range(len(steps) + 2)]
    for program in waiting:
        program.waiting()
    job.deaths.await_at(*steps)
    with Load(job.shop, 100_000):
        kill(leader)
        wait_until(lambda: not job.deaths.left(), HANGS_S, f"deaths at {', '.join(steps)}")
        (winner,) = awaited(waiting, "running", 1)
        winner.moved()
        (spare,) = awaited(waiting, "standby", 1)
    dead = [each for each in waiting if each not in (winner, spare)]
    assert [each.process.poll() for each in dead] == [-signal.SIGKILL] * len(steps)
    assert all(map(freed, dead))
    assert only_leader(job) == winner.process.pid
    assert (winner.running().incarnation or 0) > (first.incarnation or 0)
    assert job.shop.judge.right()
    winner.stop()
    assert spare.ended() == 0


@pytest.mark.nightly
def test_standbys_that_are_stopped_as_they_take_over_leave_the_job_to_the_next(watched: Callable[..., Watched]) -> None:
    """Whoever takes over gets SIGTERM at one step, the next at the next: each ends cleanly, and the last one leads."""
    job = watched("left")
    leader = job.program("leader", standby=False)
    first = leader.running()
    waiting = [job.program(f"standby-{number}") for number in range(len(STOPPED) + 1)]
    for program in waiting:
        program.waiting()
    job.deaths.await_at(*STOPPED, by=signal.SIGTERM)
    with Load(job.shop):
        leader.moved()
        kill(leader)
        wait_until(lambda: not job.deaths.left(), HANGS_S, f"stops at {', '.join(STOPPED)}")
        (winner,) = awaited(waiting, "running", 1)
        winner.moved()
    for program in waiting:
        if program is not winner:
            assert program.ended() == 0, program.log()
            state = program.jobs.state()
            assert state is not None
            assert state.phase == "stopped"
            assert str(state.cause) == "it received SIGTERM as it took over, and leaves the job to the next standby"
            assert not freed(program), "it has given the lease back itself"
    assert only_leader(job) == winner.process.pid
    # The first one had not raised it.
    assert winner.running().incarnation == (first.incarnation or 0) + len(STOPPED)
    assert job.shop.judge.right()
    winner.stop()


@pytest.mark.nightly
def test_standbys_die_before_they_are_needed_and_one_that_stays_takes_over(watched: Callable[..., Watched]) -> None:
    """One dies in its rehearsal, one as it waits; the job does not notice, and the third takes over from the leader."""
    job = watched("early", SHORT_SESSION_S)
    leader = job.program("leader", standby=False)
    leader.running()
    job.deaths.await_at("rehearsing the query")
    with Load(job.shop):
        assert job.program("rehearsing").ended() == -signal.SIGKILL
        waiting, stays = job.program("waiting"), job.program("stays")
        for program in (waiting, stays):
            program.waiting()
        kill(waiting)
        leader.moved()
        assert only_leader(job) == leader.process.pid
        wait_until(lambda: len(job.place.standbys()) == 1, HANGS_S, "the dead are off the list")
        kill(leader)
        stays.running()
        stays.moved()
    assert only_leader(job) == stays.process.pid
    assert job.shop.judge.right()
    stays.stop()


@pytest.mark.nightly
def test_a_job_is_handed_over_to_a_standby_from_a_snapshot(
    watched: Callable[..., Watched], capfd: pytest.CaptureFixture[str]
) -> None:
    """Refused without a standby; with two one goes on from the snapshot, although the first winner dies."""
    job = watched("handed")
    leader = job.program("leader", standby=False)
    first = leader.running()
    settings = {**job.shop.settings, "job.folder": str(leader.jobs.path.parent)}
    command = ["stop", job.shop.name, "--hand-over", "--json"]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert run(command) == NoStandby.exit_code
    assert "no standby waits" in capfd.readouterr().err
    waiting = [job.program("one"), job.program("another")]
    for program in waiting:
        program.waiting()
    job.deaths.await_at("claiming the sinks")
    with Load(job.shop):
        leader.moved()
        assert run(command) == 0, leader.log()
        said = json.loads(capfd.readouterr().out)
        assert (said["killed"], leader.ended()) == (False, 0)
        (winner,) = awaited(waiting, "running", 1)
        winner.moved()
    assert said["successor"]["incarnation"] == winner.running().incarnation == (first.incarnation or 0) + 2
    assert only_leader(job) == winner.process.pid
    note = job.place.life()
    assert note is not None
    assert note["commit"] == said["snapshot"]["id"]
    assert job.shop.judge.right()
    winner.stop()


@pytest.mark.nightly
def test_a_detached_job_is_handed_over_and_its_supervisor_does_not_start_it_again(
    watched: Callable[..., Watched], capfd: pytest.CaptureFixture[str]
) -> None:
    job = watched("detached")
    with ExitStack() as stack:
        leader = stack.enter_context(closing(Detached(job.shop, job.folder / "leader")))
        before = leader.state
        assert (before.phase, leader.gone()) == ("running", False)
        standby = stack.enter_context(closing(Detached(job.shop, job.folder / "standby", "--standby")))
        assert standby.state.phase == "standby"
        with Load(job.shop):
            leader.moved()
            assert run(["stop", job.shop.name, "--hand-over", "--json", *leader.conf]) == 0
            said = json.loads(capfd.readouterr().out)
            after = leader.state
            assert (after.phase, after.exit_code, after.life, leader.gone()) == ("stopped", 0, before.life, True)
            assert str(after.cause) == "it was handed over to a standby"
            wait_until(lambda: standby.state.phase == "running", HANGS_S, "the standby leads")
            standby.moved()
        led = standby.state
        assert said["killed"] is False
        assert said["successor"]["incarnation"] == led.incarnation == (before.incarnation or 0) + 1
        assert led.runner is not None
        assert only_leader(job) == led.runner.pid
        assert job.shop.judge.right()
        assert run(["stop", job.shop.name, *standby.conf]) == 0
        assert (standby.state.phase, standby.gone()) == ("stopped", True)
        assert (leader.state, leader.gone(), job.place.holder()) == (after, True, None)
        assert job.shop.judge.right()


def freed(program: Program) -> bool:
    """Whether the program's service has freed its lease."""
    return "has ended: freed its lease" in program.jobs.log_file.read_text(errors="replace")


def awaited(programs: Sequence[Program], phase: str, count: int) -> list[Program]:
    """Wait until so many of the programs that live are in a phase."""
    found: list[Program] = []

    def there() -> bool:
        states = {each: each.jobs.state() for each in programs if each.process.poll() is None}
        found[:] = [each for each, state in states.items() if state is not None and state.phase == phase]
        return len(found) == count

    wait_until(there, HANGS_S, f"{count} programs in the phase {phase}")
    return found


def only_leader(job: Watched) -> int:
    """The process that holds the lease."""
    leader = job.place.leader()
    assert leader is not None
    return int(leader[0].split()[1])
