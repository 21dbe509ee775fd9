"""What tests start ends with them, also if they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hanging import HANGS_S

SUPPORT = Path(__file__).parent / "support"
PROGRAM = """
import subprocess, sys, time
from guard import Guard
server = subprocess.Popen(["sleep", "1000"], start_new_session=True)
guard = Guard("kill", "-KILL", str(server.pid))
if len(sys.argv) > 1:
    guard.close()
print(server.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("closed", [False, True])
def test_a_server_ends_with_the_process_that_started_it_unless_that_says_otherwise(closed: bool) -> None:
    command = [sys.executable, "-c", PROGRAM, *(["closed"] if closed else [])]
    with subprocess.Popen(command, cwd=SUPPORT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        process.kill()
    try:
        if closed:
            os.kill(server, 0)
            return
        deadline = time.monotonic() + HANGS_S
        while Path(f"/proc/{server}/cmdline").exists() and Path(f"/proc/{server}/cmdline").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        if closed:
            os.kill(server, signal.SIGKILL)
