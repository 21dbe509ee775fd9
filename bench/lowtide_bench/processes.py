"""CPU time of processes, from /proc: needs no dependency, and Lowtide runs on Linux."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has used so far, in s; 0 if it is gone."""
    fields = _stat(pid)
    # utime and stime, counted from the field after the name.
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else 0.0


def busy_s() -> float:
    """Return the CPU time that this machine has used since its start, in s, time stolen by a host included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = _cpu_line()
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def _cpu_line() -> list[int]:
    """The first eight figures of /proc/stat for all cores."""
    return [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]


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
