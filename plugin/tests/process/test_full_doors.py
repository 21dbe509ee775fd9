"""A Unix socket whose queue is full: who comes waits for room, but no longer than for anything else."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from doors import listening, worker
from hanging import HANGS_S
from stage_rig import SECRET

from lowtide.jars.java import find_java
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import pyspark_folder
from lowtide.process.doors import DoorKind
from lowtide_tracker.unix import connected

SOURCE = Path(__file__).parents[1] / "support" / "jvm" / "ConnectAt.java"
NEVER_MS = int(HANGS_S * 1000)


@pytest.fixture(name="full")
def _full() -> Iterator[tuple[socket.socket, str]]:
    """A door that nobody looks at, with as many before it as its queue takes."""
    with ExitStack() as crowd:
        listener, address = crowd.enter_context(listening(DoorKind.UNIX))
        crowd.enter_context(listener).listen(0)
        crowd.enter_context(connected(address, HANGS_S))
        yield listener, address


def test_who_comes_to_a_full_door_gives_up_after_its_time(full: tuple[socket.socket, str]) -> None:
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no connection for 0\.2 s"):
        connected(full[1], 0.2)
    assert time.monotonic() - began_s >= 0.2


def test_who_comes_to_a_full_door_is_let_in_once_there_is_room(full: tuple[socket.socket, str]) -> None:
    listener, address = full

    def take() -> None:
        listener.accept()[0].close()

    let_in = threading.Timer(0.1, take)
    let_in.start()
    with connected(address, HANGS_S):
        pass
    let_in.join()


@pytest.mark.slow
def test_a_jvm_waits_at_a_full_door_for_its_time_and_until_its_task_is_killed(
    full: tuple[socket.socket, str], tmp_path: Path
) -> None:
    """A blocking connect of a Unix socket has no limit of the kernel's."""
    path = os.pathsep.join([str(shim_jar()), f"{pyspark_folder() / 'jars'}/*"])
    java = find_java().executable.resolve()
    subprocess.run([java.with_name("javac"), "-cp", path, "-d", tmp_path, SOURCE], check=True, timeout=HANGS_S)

    def says(address: str, limit_ms: int, interrupt_ms: int) -> str:
        options = ["-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join([str(tmp_path), path])]
        figures = [address, SECRET.hex(), str(limit_ms), str(interrupt_ms)]
        command = [str(java), *options, "io.lowtide.ConnectAt", *figures]
        done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=HANGS_S)
        return done.stdout.strip()

    assert says(full[1], 300, NEVER_MS).endswith("the door did not answer within 300 ms")
    interrupted = says(full[1], 9000, 300)
    assert interrupted.startswith(f"cannot talk to the door at {full[1]}")
    assert "did not answer" not in interrupted
    with worker(DoorKind.UNIX) as door:
        assert says(door.address, 9000, NEVER_MS) == "connected"
