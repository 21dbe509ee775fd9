"""`lowtide stop --hand-over` on a real ZooKeeper; the job sleeps, and its control API is a test's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from controlled import ControlledJob, controlled
from hanging import HANGS_S
from seen import SHAPE
from sleeping_job import sleeping

from lowtide.cli import hand_over
from lowtide.cli.main import run
from lowtide.errors import NotRunning
from lowtide.events import EventLog
from lowtide.jobs.folder import JobFolder
from lowtide.service.standbys import NoStandby
from lowtide.status.job_view import SnapshotView
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.standbys import Standby
from lowtide_snapshots.job.store import JobStore

pytestmark = pytest.mark.zookeeper

COMMITTED = SnapshotView(
    id="000003-0001", name=None, phase="committed", min_time_ms=1000, parts=2, parts_done=2, rows=1, bytes=10,
    began="2026-01-02T03:04:05.000Z", took_s=0.1, waits_for=[],
)  # fmt: skip
ONE = Standby("2026-01-01T00:00:00+00:00", "process 7 on there", True)


@pytest.fixture(name="job")
def _job() -> Iterator[ControlledJob]:
    with controlled(SHAPE, EventLog("index", 3)) as job:
        job.taking = [COMMITTED]
        yield job


class Setting:
    """One job's place and folder, and the command's options for both."""

    def __init__(self, place: Any, folder: Path) -> None:
        root = f"lowtide-{uuid.uuid4().hex[:8]}"
        self.store: JobStore = place.open("index", root=root)
        self.waiting: JobStore = place.open("index", root=root)
        self.folder = JobFolder(folder, "index")
        settings = {"job.folder": folder, "zookeeper.hosts": place.hosts, "zookeeper.root": root}
        self.conf = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def begin(self) -> None:
        """Lead up to the life that the control API is of."""
        self.store.take_lease("process 1 on here", 0.0, lambda _: None)
        while self.store.raise_incarnation() < SHAPE.incarnation:
            pass


@pytest.fixture(name="at")
def _at(place: Any, tmp_path: Path) -> Setting:
    at = Setting(place, tmp_path)
    at.begin()
    return at


def test_without_a_standby_that_is_ready_the_job_runs_on(
    job: ControlledJob, at: Setting, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with sleeping(tmp_path, job) as process:
        assert run(["stop", "--hand-over", *at.conf]) == NoStandby.exit_code
        said = capfd.readouterr().err
        assert 'job "index" is not handed over: no standby waits' in said
        assert "lowtide run flow.py --standby" in said
        at.waiting.show_standby(Standby(ONE.since, ONE.holder))
        assert run(["stop", "--hand-over", *at.conf]) == NoStandby.exit_code
        assert "its standby still starts: process 7 on there" in capfd.readouterr().err
        assert (job.asked, job.stops, process.poll()) == ([], [], None)


def test_a_standby_does_not_hand_its_leaders_job_over(
    job: ControlledJob, at: Setting, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its own program would be ended, and the leader's would not."""
    at.waiting.show_standby(ONE)
    with sleeping(tmp_path, job) as process:
        state = at.folder.state()
        assert state is not None
        at.folder.write(msgspec.structs.replace(state, phase="standby"))
        assert run(["stop", "index", "--hand-over", *at.conf]) == NotRunning.exit_code
        assert 'not run by the program of this folder, which is "standby"' in capfd.readouterr().err
        assert (job.asked, job.stops, process.poll()) == ([], [], None)


def test_a_standby_that_is_gone_when_the_snapshot_is_taken_is_noticed_by_the_job(
    job: ControlledJob, at: Setting, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise NoStandby("no standby waits", way_out="start one")

    job.handing_over = refuse
    at.waiting.show_standby(ONE)
    with sleeping(tmp_path, job) as process:
        assert run(["stop", "--hand-over", *at.conf]) == NoStandby.exit_code
        said = capfd.readouterr().err
        assert "no standby waits" in said
        assert "what to do: start one" in said
        assert (job.asked, process.poll()) == ([(None, True)], None)


def test_the_snapshot_comes_first_and_the_command_names_the_successor(
    job: ControlledJob, at: Setting, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    at.waiting.show_standby(ONE)
    with sleeping(tmp_path, job) as process:

        def end() -> None:
            assert job.asked == [(None, True)]
            state = at.folder.state()
            assert state is not None
            ended = Cause("stop", "it was handed over to a standby")
            at.folder.write(msgspec.structs.replace(state, phase="stopped", exit_code=0, cause=ended))
            at.store.close()
            process.terminate()
            at.waiting.take_lease(ONE.holder, HANGS_S, lambda _: None)
            next_life = at.waiting.raise_incarnation()
            at.waiting.set_life(next_life, {"incarnation": next_life, "phase": "running", "driver": ONE.holder})

        job.handing_over = end
        assert run(["stop", "index", "--hand-over", "--json", *at.conf]) == 0
        text = capfd.readouterr()
        assert "it was handed over to a standby" in text.err
        assert "process 7 on there continues it as life 4" in text.err
        said = json.loads(text.out)
        assert said["snapshot"]["id"] == "000003-0001"
        assert said["successor"] == {"holder": ONE.holder, "incarnation": 4}


def test_a_hand_over_that_no_standby_takes_is_an_error(
    job: ControlledJob,
    at: Setting,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hand_over, "TAKEN_WITHIN_S", 0.2)
    at.waiting.show_standby(ONE)
    with sleeping(tmp_path, job) as process:
        job.handing_over = process.terminate
        assert run(["stop", "--hand-over", *at.conf]) == NoStandby.exit_code
        assert 'job "index" has stopped, but no standby runs it after 0.2 s' in capfd.readouterr().err


def test_force_is_for_a_snapshot_that_fails(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stop", "--force"]) == 2
    assert "--force needs --with-snapshot or --hand-over" in capfd.readouterr().err
