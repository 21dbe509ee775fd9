"""A child ends with its parent, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from hanging import HANGS_S

from lowtide.process.identity import Process

CHILD = """
import os, sys, time
from lowtide.process.parent import die_with
die_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
time.sleep(600)
"""


def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = Process.of(int(parent.stdout.readline()))
    assert child.alive()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until = time.monotonic() + HANGS_S
    while child.alive():
        assert time.monotonic() < until
        time.sleep(0.01)
    parent.stdout.close()


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE, check=True)
    child = subprocess.run([sys.executable, "-c", CHILD, gone.stdout.decode()], timeout=HANGS_S, check=False)
    assert child.returncode == 1
