"""The processes of a job's program, by what each is; nobody else's are ever seen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

from lowtide_bench.processes import command, parents
from tests.driver import below

MARK = "LOWTIDE_CHAOS"
"""The environment variable by which the processes of a run know each other."""


def of_program(pid: int) -> dict[str, list[int]]:
    """A program's processes by role, the oldest first; those of no role are left out.

    The fork server starts workers, and a worker what saves its share of a snapshot, all under one command line.
    """
    parent_of = parents()
    commands = {each: command(each) for each in sorted(below(pid))}
    roles: dict[int, str] = {pid: "driver"}
    for each, line in commands.items():
        if "-m lowtide.worker.forkserver" in line:
            forked = [up for up in _above(each, parent_of) if "-m lowtide.worker.forkserver" in commands.get(up, "")]
            roles[each] = ("forkserver", "worker", "saver")[min(2, len(forked))]
        elif "-m lowtide.service.tracker.main" in line:
            roles[each] = "tracker"
        elif "-m lowtide.calls.process" in line:
            roles[each] = "caller"
        elif "-m lowtide.service.carriers.main" in line:
            roles[each] = "carrier"
        elif "-m lowtide.service" in line:
            roles[each] = "service"
        elif "CoarseGrainedExecutorBackend" in line:
            roles[each] = "executor"
        elif "org.apache.spark.deploy.SparkSubmit" in line:
            roles[each] = "spark"
    found: dict[str, list[int]] = {}
    for each, role in roles.items():
        found.setdefault(role, []).append(each)
    return found


def _above(pid: int, parent_of: dict[int, int]) -> Iterable[int]:
    while pid := parent_of.get(pid, 0):
        yield pid


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; one that has gone needs none."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def marked(mark: str) -> list[int]:
    """All processes of a run but this one."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as environment:
                if wanted in environment.read().split(b"\0"):
                    found.append(int(entry.name))
    return found
