"""CPU time of processes, from /proc: needs no dependency, and Lowtide runs on Linux."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU time in s of a process so far, and of the children it has waited for; 0 if it is gone."""
    # utime, stime, cutime and cstime, counted from the field after the name.
    return sum(map(int, _stat(pid)[11:15])) / _TICKS_PER_S


def orphans_s() -> float:
    """Return the CPU time in s of ended processes that this process's ancestors have waited for.

    They wait for orphans too, such as a worker leaves when it writes a snapshot, and may be in no run's process tree.
    """
    parent_of, pid, found = parents(), os.getpid(), 0.0
    while pid := parent_of.get(pid, 0):
        found += sum(map(int, _stat(pid)[13:15])) / _TICKS_PER_S
    return found


def busy_s() -> float:
    """Return the CPU time that this machine has used since its start, in s, time stolen by a host included.

    All but the idle time: the kernel measures that, while it samples the others and misses what is shorter than a tick.
    """
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    idle = int(fields[4]) + int(fields[5])
    return time.clock_gettime(time.CLOCK_BOOTTIME) * (os.cpu_count() or 1) - idle / _TICKS_PER_S


def parents() -> dict[int, int]:
    """Return every process of this machine with its parent."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: int(fields[1]) for pid in pids if (fields := _stat(pid))}


def descendants(roots: Iterable[int], parent_of: dict[int, int]) -> set[int]:
    """Return these processes and all their descendants."""
    found, fresh = set[int](), set(roots)
    while fresh:
        found |= fresh
        fresh = {pid for pid, parent in parent_of.items() if parent in fresh} - found
    return found


def command(pid: int) -> str:
    """Return a process's command line; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may contain blanks itself: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
