"""The guard of an Airflow process: nothing is left of the process, whatever dies; other sessions are not touched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_airflow import guard
from hanging import HANGS_S

GRACE_S = 0.5
# A process that starts one in its process group, one in a group of its own, and one in a session of its own.
FAMILY = """
import os, subprocess, sys, time
def child(**options):
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)"], **options).pid
pids = [os.getpid(), child(), child(process_group=0), child(start_new_session=True)]
with open(sys.argv[1] + ".new", "w") as file:
    file.write(" ".join(map(str, pids)))
os.rename(sys.argv[1] + ".new", sys.argv[1])
{then}
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


def wait_until(done: Callable[[], bool], within_s: float = HANGS_S) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def guarded(folder: Path, then: str, starter: int | None = None) -> list[str]:
    code = FAMILY.format(then=then)
    words = [sys.executable, "-I", "-S", guard.__file__, str(starter or os.getpid()), str(GRACE_S)]
    return [*words, sys.executable, "-I", "-S", "-c", code, str(folder / "pids")]


def family(folder: Path) -> list[int]:
    wait_until((folder / "pids").exists)
    return [int(pid) for pid in (folder / "pids").read_text().split()]


@pytest.fixture(name="ends_left")
def _ends_left(tmp_path: Path) -> object:
    """Ends, after a test, the process that rightly outlives the guard."""
    yield
    os.kill(family(tmp_path)[-1], signal.SIGKILL)


def lives(pid: int) -> bool:
    return guard.session_of(pid) != 0


@pytest.mark.usefixtures("ends_left")
def test_a_request_to_stop_ends_the_command_and_its_session_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(guarded(tmp_path, "time.sleep(1000)"), start_new_session=True)
    pids = family(tmp_path)
    assert sorted(guard.members(process.pid)) == sorted(pids[:3])
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANGS_S) == 128 + signal.SIGTERM
    assert [lives(pid) for pid in pids] == [False, False, False, True]


@pytest.mark.usefixtures("ends_left")
def test_a_command_that_does_not_stop_is_killed_with_what_it_started(tmp_path: Path) -> None:
    process = subprocess.Popen(guarded(tmp_path, STUBBORN), start_new_session=True)
    pids = family(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANGS_S) == 128 + signal.SIGKILL
    assert [lives(pid) for pid in pids] == [False, False, False, True]


@pytest.mark.usefixtures("ends_left")
def test_a_command_that_ends_by_itself_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(guarded(tmp_path, "sys.exit(7)"), start_new_session=True)
    pids = family(tmp_path)
    assert process.wait(HANGS_S) == 7
    assert [lives(pid) for pid in pids] == [False, False, False, True]


@pytest.mark.usefixtures("ends_left")
def test_nothing_outlives_a_starter_that_is_killed(tmp_path: Path) -> None:
    code = "import os, subprocess, sys, time; words = sys.argv[1:]; words[4] = str(os.getpid());"
    code += " subprocess.Popen(words, start_new_session=True); time.sleep(1000)"
    starter = subprocess.Popen([sys.executable, "-c", code, *guarded(tmp_path, "time.sleep(1000)")])
    pids = family(tmp_path)
    starter.kill()
    starter.wait()
    wait_until(lambda: not any(lives(pid) for pid in pids[:3]))
    assert lives(pids[3])


def test_a_starter_that_had_gone_before_is_noticed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    gone.wait()
    process = subprocess.Popen(guarded(tmp_path, "time.sleep(1000)", starter=gone.pid), start_new_session=True)
    process.wait(HANGS_S)
    assert guard.members(process.pid) == []


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "1", str(tmp_path / "nothing")]
    done = subprocess.run(words, capture_output=True, text=True, start_new_session=True, check=False, timeout=HANGS_S)
    assert done.returncode == guard.CANNOT_RUN
    assert f"{tmp_path}/nothing cannot be run: No such file" in done.stderr
