"""Records of processes: whom they name, whom a stop may hit, and with whom a guarded process dies."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hanging import HANGS_S

from lowtide.embedded.process import ProcessRecord, launch, read_record
from lowtide.process import launcher

SLEEPER = [sys.executable, "-c", "import time; time.sleep(1000)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(1000)",
]


def eventually(true: object, timeout_s: float = HANGS_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    """True if the process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def started(
    folder: Path, command: list[str] = SLEEPER, *, dies_with_us: bool = False, grace_s: float = 5.0
) -> Iterator[tuple["subprocess.Popen[bytes]", ProcessRecord]]:
    file = folder / "process.json"
    process = launch(
        command,
        record_file=file,
        server="sleeper",
        port=7,
        output=folder / "output.log",
        dies_with_us=dies_with_us,
        grace_s=grace_s,
    )
    try:
        assert eventually(file.exists)
        record = read_record(file)
        assert record is not None
        yield process, record
    finally:
        process.kill()
        process.wait()


def this_process() -> ProcessRecord:
    pid = os.getpid()
    return ProcessRecord(pid, launcher.start_time(pid), launcher.boot_id(), "me", 1, 0)


def test_a_record_names_one_process_for_ever() -> None:
    record = this_process()
    assert record.alive()
    assert not replace(record, start_time=record.start_time - 1).alive()
    assert not replace(record, boot_id="another").alive()


def test_a_stop_never_hits_a_process_that_was_given_the_id_later() -> None:
    innocent = subprocess.Popen(SLEEPER)
    try:
        start_time = launcher.start_time(innocent.pid)
        stale = ProcessRecord(innocent.pid, start_time - 1, launcher.boot_id(), "kafka", 1, 0)
        assert stale.stop(0.0) is False
        time.sleep(0.1)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_stop_of_nobody_is_no_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert ProcessRecord(ended.pid, 1, launcher.boot_id(), "kafka", 1, 0).stop(0.0) is False


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"pid": 1}', '{"pid": 1, "older": true}'])
def test_what_is_no_record_is_nobody(tmp_path: Path, content: str) -> None:
    file = tmp_path / "process.json"
    assert read_record(file) is None
    file.write_text(content)
    assert read_record(file) is None


def test_the_record_names_the_server_itself(tmp_path: Path) -> None:
    with started(tmp_path) as (process, record):
        assert record.pid == process.pid
        assert (record.server, record.port, record.parent) == ("sleeper", 7, 0)
        assert json.loads((tmp_path / "process.json").read_text())["boot_id"] == launcher.boot_id()
        assert eventually(lambda: b"time.sleep" in Path(f"/proc/{record.pid}/cmdline").read_bytes())
        assert os.getsid(record.pid) != os.getsid(0)


def test_a_server_that_stops_is_not_killed(tmp_path: Path) -> None:
    with started(tmp_path) as (process, record):
        assert record.stop(HANGS_S) is False
        assert process.wait(HANGS_S) == -signal.SIGTERM
        assert not record.alive()


def test_a_server_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, STUBBORN) as (process, record):
        assert eventually(lambda: b"deaf" in (tmp_path / "output.log").read_bytes())
        assert record.stop(0.2) is True
        assert process.wait(HANGS_S) == -signal.SIGKILL


def test_a_guarded_server_is_another_process_than_its_guard(tmp_path: Path) -> None:
    with started(tmp_path, dies_with_us=True) as (process, record):
        assert record.pid != process.pid
        assert record.parent == os.getpid()
        assert record.stop(HANGS_S) is False
        assert process.wait(HANGS_S) == 128 + signal.SIGTERM


def test_a_guarded_server_dies_with_its_guard(tmp_path: Path) -> None:
    with started(tmp_path, dies_with_us=True) as (process, record):
        process.kill()
        assert eventually(lambda: gone(record.pid))


PARENT = """
import sys, threading, time
from pathlib import Path
from lowtide.embedded.process import launch

folder = Path(sys.argv[1])


def start():
    launch(
        sys.argv[4:], record_file=folder / "process.json", server="sleeper", port=7, output=folder / "output.log",
        dies_with_us=sys.argv[2] == "guarded", grace_s=float(sys.argv[3]),
    )


# In a thread that ends: it is the process, not the thread, that the server must die with.
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(1000)
"""


def record_of_a_killed_parents_server(folder: Path, form: str, command: list[str], grace_s: float) -> ProcessRecord:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder), form, str(grace_s), *command])
    try:
        assert eventually((folder / "process.json").exists)
        if command is STUBBORN:
            assert eventually(lambda: b"deaf" in (folder / "output.log").read_bytes())
        time.sleep(0.2)
        record = read_record(folder / "process.json")
        assert record is not None
        assert record.alive(), "the server lives on when the thread that started it has ended"
        return record
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.parametrize("command", [SLEEPER, STUBBORN], ids=["gently", "by force"])
def test_a_guarded_server_dies_with_a_parent_that_is_killed(tmp_path: Path, command: list[str]) -> None:
    record = record_of_a_killed_parents_server(tmp_path, "guarded", command, grace_s=0.3)
    assert eventually(lambda: gone(record.pid))


def test_a_detached_server_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    record = record_of_a_killed_parents_server(tmp_path, "detached", SLEEPER, grace_s=0.3)
    time.sleep(0.3)
    assert record.alive()
    record.stop(0.0)
    assert eventually(lambda: gone(record.pid))


def test_a_command_that_is_not_there_ends_at_once(tmp_path: Path) -> None:
    for dies_with_us in (True, False):
        process = launch(
            ["/nowhere/java"],
            record_file=tmp_path / "process.json",
            server="sleeper",
            port=7,
            output=tmp_path / "output.log",
            dies_with_us=dies_with_us,
            grace_s=1.0,
        )
        assert process.wait(HANGS_S) != 0
        assert b"/nowhere/java" in (tmp_path / "output.log").read_bytes()
