"""Jobs from outside, without Spark: folder, lock, state, log, mark, supervisor."""

import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hanging import HANGS_S

from lowtide.cli.main import run
from lowtide.cli.submit import arguments
from lowtide.conf import Conf
from lowtide.errors import AlreadyRunning, ConfError, NotRunning
from lowtide.jobs.detached import detach
from lowtide.jobs.folder import JobFolder, states
from lowtide.jobs.job_end import NotOurs, end_job
from lowtide.jobs.jvm import LOGGING
from lowtide.jobs.log import KEPT, Log
from lowtide.jobs.state import JobState, read_state, write_state
from lowtide.process.identity import Process
from lowtide.process.mark import VARIABLE, end_marked, marked, new_life
from lowtide_snapshots.cause import Cause

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GONE = Process(1 << 22, 1, "no boot")

# A runner that says it runs and then does as asked: sleep; be deaf; end.
RUNNER = """
import os, signal, sys, time
from pathlib import Path
import msgspec
from lowtide.jobs.folder import JobFolder
from lowtide.process.identity import Process
root, how = sys.argv[1:3]
folder = JobFolder(Path(root), "job")
if how == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == "ends":
    sys.exit(7)
folder.write(msgspec.structs.replace(folder.state(), phase="running", runner=Process.of(os.getpid())))
if how == "child":
    os.posix_spawn(sys.executable, [sys.executable, "-c", "import time; time.sleep(1)"], os.environ)
time.sleep(1000)
"""


def state(**changes: object) -> JobState:
    begun = JobState(name="job", life=new_life(), phase="running", started_at=AT, runner=Process.of(os.getpid()))
    return msgspec.structs.replace(begun, **changes)


def conf(tmp_path: Path, **settings: str) -> Conf:
    return Conf.load(None, {"job.folder": str(tmp_path), **{key.replace("__", "."): v for key, v in settings.items()}})


def detached(tmp_path: Path, how: str, **settings: str) -> tuple[JobFolder, JobState]:
    command = [sys.executable, "-c", RUNNER, str(tmp_path), how]
    return JobFolder(tmp_path, "job"), detach("job", conf(tmp_path, **settings), lambda _: command)


def until_over(folder: JobFolder) -> JobState:
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        known = folder.state()
        if known is not None and known.ended:
            return known
        time.sleep(0.05)
    raise AssertionError("the job has not ended")


def test_a_state_reads_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    written = state(supervisor=GONE, incarnation=3, ready_at=AT, cause=Cause("other", "why"))
    write_state(file, written)
    assert read_state(file) == written
    as_object = msgspec.json.decode(file.read_bytes())
    file.write_bytes(msgspec.json.encode(as_object | {"cause": "why"}))
    assert read_state(file) == written, "an older version wrote a text"
    write_state(file, written)
    assert '"started_at": "2026-01-02T03:04:05Z"' in file.read_text()
    file.write_text('{"name": "job"')
    assert read_state(file) is None


def test_a_life_whose_processes_have_gone_has_failed() -> None:
    assert state().seen().phase == "running"
    seen = state(runner=GONE).seen()
    assert (seen.phase, str(seen.cause)) == ("failed", f"process {GONE.pid} was killed, or the machine went down")
    assert state(runner=GONE, phase="stopped").seen().phase == "stopped"
    assert state(runner=GONE, supervisor=Process.of(os.getpid())).seen().phase == "running"


def test_a_number_that_another_process_has_now_is_not_taken_for_it() -> None:
    us = Process.of(os.getpid())
    assert us.alive()
    other = replace(us, start_time=us.start_time - 1)
    assert not other.alive()
    assert not other.send(signal.SIGKILL)
    assert other.ended_within(0)
    assert not us.ended_within(0)


def test_one_life_at_a_time_has_the_lock(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "job")
    held = folder.lock()
    folder.write(state())
    with pytest.raises(AlreadyRunning, match=f"as process {os.getpid()}"):
        JobFolder(tmp_path, "job").lock()
    JobFolder(tmp_path, "other").lock()
    os.close(held)
    os.close(folder.lock())


def test_any_name_is_one_folder(tmp_path: Path) -> None:
    for name in ("plain", "a/b", "..", ".", "with space", "日本"):
        folder = JobFolder(tmp_path, name)
        folder.make()
        folder.write(state(name=name))
        assert folder.path.parent == tmp_path
    assert sorted(known.name for _, known in states(tmp_path)) == sorted(
        ["plain", "a/b", "..", ".", "with space", "日本"]
    )
    assert {folder.name for folder in JobFolder.existing(tmp_path)} == {known.name for _, known in states(tmp_path)}


def test_a_job_that_never_ran_is_named_with_those_that_did(tmp_path: Path) -> None:
    JobFolder(tmp_path, "orders").make()
    JobFolder(tmp_path, "orders").write(state())
    with pytest.raises(NotRunning, match="there are: orders"):
        JobFolder.find(tmp_path, "order")
    assert JobFolder.find(tmp_path, "orders").name == "orders"


def test_the_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "job")
    folder.make()
    assert folder.secret() is None
    folder.keep_secret(b"one")
    folder.keep_secret(b"other")
    assert folder.secret() == b"other"
    assert stat.S_IMODE(folder.secret_file.stat().st_mode) == 0o600
    folder.forget_secret()
    assert folder.secret() is None


def test_a_log_keeps_a_few_lives(tmp_path: Path) -> None:
    log = Log(tmp_path / "job.log")
    for life in range(KEPT + 3):
        log.begin()
        log.file.write_text(str(life))
    older = [(tmp_path / f"job.log.{age}").read_text() for age in range(1, KEPT + 1)]
    assert older == ["6", "5", "4", "3", "2"]
    assert log.file.read_text() == "7"
    assert len(list(tmp_path.iterdir())) == KEPT + 1


def test_a_log_that_is_written_by_others_stays_within_its_limit(tmp_path: Path) -> None:
    log = Log(tmp_path / "job.log", limit_bytes=1000)
    descriptor = log.open()
    os.write(descriptor, b"a" * 1001)
    log.limit()
    os.write(descriptor, b"b" * 10)
    log.limit()
    os.close(descriptor)
    assert log.file.read_bytes() == b"b" * 10
    assert (tmp_path / "job.log.1").read_bytes() == b"a" * 1001


def test_output_goes_into_the_log_for_a_while(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log(tmp_path / "job.log")
    os.write(2, b"before\n")
    with log.taking_output():
        subprocess.run(["sh", "-c", "echo out; echo error >&2"], check=True)
    os.write(2, b"after\n")
    assert log.file.read_text() == "out\nerror\n"
    assert capfd.readouterr().err == "before\nafter\n"


def test_all_processes_of_a_life_are_found_and_ended() -> None:
    life = new_life()
    assert marked(life) == []
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    script = f"{sys.executable} -c '{deaf}' & {sys.executable} -c '{deaf}' & wait"
    shell = subprocess.Popen(["sh", "-c", script], env={**os.environ, VARIABLE: life}, start_new_session=True)
    deadline = time.monotonic() + HANGS_S
    while len(marked(life)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(marked(life)) == 3
    assert end_marked(life, 0.1) == 3
    assert marked(life) == []
    shell.wait()


def test_a_detached_job_is_stopped_through_its_supervisor(tmp_path: Path) -> None:
    folder, ready = detached(tmp_path, "child")
    assert ready.phase == "running"
    assert ready.supervisor is not None
    deadline = time.monotonic() + HANGS_S
    while len(marked(ready.life)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(marked(ready.life)) == 2
    with pytest.raises(AlreadyRunning):
        detached(tmp_path, "sleeps")
    ending = end_job(folder, 10)
    assert marked(ready.life) == []
    # This runner has no handler of its own, so it is its supervisor who says how it died.
    assert str(ending.state.cause).endswith("was killed by SIGTERM")
    with pytest.raises(NotRunning):
        end_job(folder, 1)
    os.close(folder.lock())


def test_a_runner_that_is_deaf_is_killed_by_its_supervisor(tmp_path: Path) -> None:
    folder, ready = detached(tmp_path, "deaf", job__stop_limit_s="0.1")
    assert ready.supervisor is not None
    ready.supervisor.send(signal.SIGTERM)
    assert str(until_over(folder).cause) == "it did not stop in time and was killed"


def test_a_job_that_does_not_stop_in_time_is_killed_with_its_supervisor(tmp_path: Path) -> None:
    folder, ready = detached(tmp_path, "deaf")
    assert ready.supervisor is not None
    ready.supervisor.send(signal.SIGSTOP)
    ending = end_job(folder, 0.2)
    assert ending.killed
    assert str(ending.state.cause) == "it did not stop within 0.2 s and was killed"
    assert marked(ready.life) == []
    assert not ready.supervisor.alive()


def test_a_runner_that_ends_before_it_is_ready_is_reported(tmp_path: Path) -> None:
    _, ended = detached(tmp_path, "ends")
    assert (ended.phase, ended.exit_code) == ("failed", 7)
    assert "ended with status 7" in str(ended.cause)


def test_a_runner_dies_with_its_supervisor(tmp_path: Path) -> None:
    _, ready = detached(tmp_path, "sleeps")
    assert ready.supervisor is not None
    assert ready.runner is not None
    ready.supervisor.send(signal.SIGKILL)
    assert ready.runner.ended_within(5)


def test_a_job_of_another_user_is_not_stopped_and_its_owner_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _number: int) -> None:
        raise PermissionError

    folder = JobFolder(tmp_path, "job")
    folder.make()
    folder.write(state())
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(NotOurs, match=f"we may not signal process {os.getpid()}") as caught:
        end_job(folder, 1)
    assert f"have {pwd.getpwuid(os.getuid()).pw_name} stop it" in caught.value.way_out
    known = folder.state()
    assert known is not None
    assert known.phase == "running"


def test_status_shows_the_whole_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raised = Cause("flow", "it raised", "flow.py:3", "correct it")
    for name, cause in (("one", raised), ("other", Cause("stop", "it received SIGTERM"))):
        folder = JobFolder(tmp_path, name)
        folder.make()
        folder.write(state(name=name, phase="failed", cause=cause))
    assert run(["status", "--set", f"job.folder={tmp_path}"]) == 0
    reported = capsys.readouterr().out
    assert f'job "one" has failed; log: {tmp_path}/one/job.log\n{raised}\n' in reported
    assert 'job "other", why' not in reported


def test_spark_submit_learns_where_to_log() -> None:
    assert LOGGING.is_file()
    reported = arguments(Conf.load())
    assert f"spark.driver.extraJavaOptions=-Dlog4j2.configurationFile={LOGGING}" in reported
    own = arguments(Conf.load(None, {"spark.properties.spark.driver.extraJavaOptions": "-Da=b"}))
    assert "spark.driver.extraJavaOptions=-Da=b" in own


def test_a_value_with_white_space_is_refused_on_a_command_line(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match="white space"):
        arguments(Conf.load(None, {"spark.properties.spark.driver.extraJavaOptions": "-Da=b -Dc=d"}))
