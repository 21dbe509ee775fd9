"""The end of a tracker's process: with the life, with its parent, or for good."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from tracker_life import INCARNATION, LIMIT_S, SECRET, TrackerLife, Worker, lives, wait

from lowtide.assignment.messages import line
from lowtide.errors import LifeEnded
from lowtide.service.tracker import lookout
from lowtide.service.tracker import process as tracker_process
from lowtide.service.tracker.messages import Ready, TrackerSetting, TrackerStart, read_from_tracker
from lowtide_tracker import LocalTracker, TrackerClient
from lowtide_tracker.unix import connected


def test_a_fault_is_reported_once_and_the_process_ends() -> None:
    with TrackerLife() as life:
        one, two = Worker(life, 1), Worker(life, 2)
        pid = life.process.pid
        assert pid is not None
        one.local.fold(1, [-1], 77)
        with pytest.raises(LifeEnded) as ended:
            two.hears(one, done=lambda: False)
        with pytest.raises(LifeEnded):
            one.hears(done=lambda: False)
        wait(lambda: life.process.pid is None)
        assert [fault.what for fault in life.faults] == [ended.value.what]
        assert "an ack at tick -1 is below min time 0" in life.faults[0].what
        assert not lives(pid)
        wait(lambda: refuses(life.address))
        assert life.restarts == []


def refuses(address: str) -> bool:
    try:
        connected(address, LIMIT_S).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    return False


def test_a_process_that_dies_too_often_ends_the_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_process, "MAX_DEATHS", 2)
    with TrackerLife() as life:
        for _ in range(2):
            life.kill()
            wait(lambda: life.process.pid is not None)
            assert life.faults == []
        life.kill()
        wait(lambda: life.faults)
        assert len(life.faults) == 1
        assert "died 3 times within 30 s" in life.faults[0].what
        assert "was killed by SIGKILL" in life.faults[0].what
        wait(lambda: refuses(life.address))
        assert [era for era, _ in life.restarts] == [2, 3]


def test_a_process_that_hangs_is_killed_unless_nobody_listened_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_process, "SILENT_LIMIT_S", 2.0)
    monkeypatch.setattr(lookout, "LATE_S", 0.5)
    with TrackerLife() as life:
        pid = life.process.pid
        assert pid is not None

        async def look() -> None:
            life.process.end_if_silent()

        life.do(look())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2.5)
        life.do(look())
        assert life.process.pid == pid, "a latecomer cannot say that nothing was said"
        deadline = time.monotonic() + LIMIT_S
        while not life.restarts and time.monotonic() < deadline:
            life.do(look())
            time.sleep(0.1)
        assert life.restarts == [(2, "was killed by SIGKILL")]
        wait(lambda: life.process.pid not in (None, pid))


def test_a_setting_that_is_none_is_reported_by_start() -> None:
    life = TrackerLife(graph={1: (9,)})
    try:
        with pytest.raises(LifeEnded, match="fed by segment 9, which is not in the graph"):
            life.do(life.process.start())
        assert (life.faults, life.process.pid) == ([], None)
    finally:
        life.stop()


def test_after_close_nothing_is_left() -> None:
    with TrackerLife() as life:
        pid = life.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGINT)  # A terminal's, which is the driver's business.
        Worker(life, 1)
        life.do(life.process.close())
        assert not lives(pid)
        assert refuses(life.address)
        assert (life.faults, life.restarts, life.process.pid) == ([], [], None)


PARENT = f"""
import asyncio
from lowtide.process.doors import DoorKind, Doors
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import TrackerHooks, TrackerProcess

async def main():
    tracker = TrackerProcess(
        TrackerSetting(1, {{1: ()}}, {{0: 0}}, 0, 64), {SECRET!r}, TrackerHooks(list, print), Doors(DoorKind.UNIX, "")
    )
    await tracker.start()
    print(tracker.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_process_ends_with_its_parent_however_that_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
        wait(lambda: not lives(pid))


BROKEN = """
from lowtide.service.tracker.main import main
from lowtide_tracker import Tracker

def receive(self, message):
    raise ZeroDivisionError

Tracker.receive = receive
main()
"""


def test_a_process_that_meets_what_nobody_foresaw_ends() -> None:
    """Half of a flush may be in its table; the one that replaces it is rebuilt."""
    local = LocalTracker(1, INCARNATION)
    local.heartbeat(0, 5)
    setting = TrackerSetting(INCARNATION, {1: []}, {0: 0}, 0, 64)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = TrackerStart(secret=SECRET.hex(), listener=listener.fileno(), setting=setting, era=1, workers=None)
        with subprocess.Popen(
            [sys.executable, "-c", BROKEN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            pass_fds=[listener.fileno()],
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(line(first).decode())
            child.stdin.flush()
            assert read_from_tracker(child.stdout.readline()) == Ready(child.pid)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            client = TrackerClient(address, secret=SECRET, incarnation=INCARNATION, local=local)
            client.connect()
            client.flush()
            assert child.wait(LIMIT_S) == 1
            assert "fault" not in child.stdout.read()
            client.close()
