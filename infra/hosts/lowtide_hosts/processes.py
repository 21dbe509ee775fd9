"""Processes of this machine, seen from outside of hosts."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
KILL_LIMIT_S = 10.0
"""Limit on the kernel's removal of a killed process."""


@dataclass(frozen=True)
class Process:
    """One process; its start distinguishes it from a later one with its number.

    Attributes:
        pid: Its number.
        began: Clock ticks after the machine's start.
    """

    pid: int
    began: int

    def __str__(self) -> str:
        return f"{self.pid}-{self.began}"

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the process with that number, unless it is gone or a zombie."""
        state, began = _stat(pid)
        return None if state in {"", "Z", "X"} else cls(pid, began)

    @property
    def lives(self) -> bool:
        """Return whether it still runs (or is stopped)."""
        return Process.of(self.pid) == self

    @property
    def can_be_entered(self) -> bool:
        """Return whether it still has its namespaces: a process that ends leaves them, but may exist for seconds more.

        It leaves the namespace of process numbers last, long after the others.
        """
        return self.lives and Path(f"/proc/{self.pid}/ns/ipc").exists()

    def children(self) -> list[Process]:
        """Return its direct children."""
        try:
            pids = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except OSError:
            return []
        return [child for child in map(Process.of, map(int, pids)) if child is not None]

    def signal(self, number: int) -> None:
        """Send it a signal, if it still lives."""
        if self.lives:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def descendants(self) -> list[Process]:
        """Return its children, their children, and so on."""
        children = self.children()
        return [*children, *(one for child in children for one in child.descendants())]

    def end(self, grace_s: float) -> None:
        """Ask it to end, then kill it with its descendants and leftovers; return when all are gone."""
        everything = [self, *self.descendants()]
        self.signal(signal.SIGTERM)
        self.gone_within(grace_s)
        for process in everything:
            process.signal(signal.SIGKILL)
        for process in everything:
            process.gone_within(KILL_LIMIT_S)

    def gone_within(self, limit_s: float) -> bool:
        """Wait until it is gone; return whether it is."""
        deadline = time.monotonic() + limit_s
        while self.lives:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True


def same_namespace(process: Process) -> list[Process]:
    """Return all processes whose numbers come from the same namespace as this one's, so all of its host."""
    return _with("ns/pid", process)


def entered(process: Process) -> list[Process]:
    """Return the processes outside of a host that have started one on it: `nsenter`, and the one that booted it."""
    inside = same_namespace(process)
    return [one for one in _with("ns/pid_for_children", process) if one not in inside]


def seeing(folder: Path) -> list[Process]:
    """Return all processes that see a mount below a folder: on hosts that have their files there, and outside."""
    sought = f" {in_its_filesystem(folder, Path('/proc/self/mountinfo').read_text())}/"
    found = []
    for one in _all():
        try:
            mounted = Path(f"/proc/{one.pid}/mountinfo").read_text()
        except OSError:
            continue
        if sought in mounted:
            found.append(one)
    return found


def in_its_filesystem(folder: Path, mounts: str) -> Path:
    """Return a folder as lists of mounts name it: below the root of its file system, wherever that is mounted.

    Args:
        folder: Folder of this machine; it may be gone.
        mounts: This machine's list, as `/proc/self/mountinfo`.
    """
    rows = [row.split(" ") for row in mounts.splitlines()]
    known = [(Path(row[4]), Path(row[3])) for row in rows if folder.is_relative_to(row[4])]
    # The last mount at a place lies above the others.
    place, root = max(enumerate(known), key=lambda each: (len(each[1][0].parts), each[0]))[1]
    return root / folder.relative_to(place)


def _with(kind: str, process: Process) -> list[Process]:
    """Return all processes that have a process's namespace of numbers, as their own or for their children."""
    try:
        space = Path(f"/proc/{process.pid}/ns/pid").stat().st_ino
    except OSError:
        return []
    found = []
    for one in _all():
        try:
            if Path(f"/proc/{one.pid}/{kind}").stat().st_ino == space:
                found.append(one)
        except OSError:
            continue
    return found


def _all() -> list[Process]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [one for one in map(Process.of, pids) if one is not None]


def _stat(pid: int) -> tuple[str, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[19])
