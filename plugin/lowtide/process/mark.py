"""The mark of a program: an environment variable that all its processes inherit, so that each can be found."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path

from lowtide.process.identity import Process

VARIABLE = "LOWTIDE_LIFE"
POLL_S = 0.05


def new_life() -> str:
    """Return a mark that no other life has."""
    return uuid.uuid4().hex


def marked(life: str) -> list[Process]:
    """Return all processes of a life on this machine but this one; those of other users are not seen.

    The process that sets the mark for itself does not show it: the kernel shows what a program was started with.
    Cost: one small file per process of the machine.
    """
    wanted = f"{VARIABLE}={life}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                found.append(Process.of(int(entry.name)))
        except OSError:
            continue  # It has ended meanwhile, or is not ours.
    return [process for process in found if process.alive()]


def end_marked(life: str, grace_s: float) -> int:
    """Wait for the end of a life's processes, then kill those that are left; returns how many were killed.

    A process may be starting another while we look, so we look until there is none.
    """
    deadline = time.monotonic() + grace_s
    while marked(life) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    killed: set[Process] = set()
    while left := marked(life):
        for process in left:
            if process.send(signal.SIGKILL):
                killed.add(process)
        time.sleep(POLL_S)
    return len(killed)
