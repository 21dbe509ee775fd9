"""A limit on the memory of processes, the page cache that they fill included: a cgroup of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from lowtide.errors import LowtideError

MB = 1e6


class LimitRefused(LowtideError):
    """Run it where a cgroup can be made, as root, or within one that has the limit already."""

    exit_code = 4


class Limit(NamedTuple):
    """A cgroup with a limit.

    Attributes:
        kind: What limits: `cgroup v1` or `cgroup v2`.
        folder: Its folder.
        most: The file with the most memory that it ever had.
    """

    kind: str
    folder: Path
    most: Path

    def take(self, pid: int) -> None:
        """Put a process there, whose children begin there too."""
        (self.folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    @property
    def peak_mb(self) -> float | None:
        """The most memory that was in use at once, in MB; None if the kernel does not say."""
        try:
            return round(int(self.most.read_text(encoding="ascii")) / MB, 1)
        except OSError:
            return None


@contextmanager
def limited(limit_bytes: int) -> Iterator[Limit]:
    """Give a cgroup with a limit; its processes have to end before the block does.

    Raises:
        LimitRefused: none can be made.
    """
    folders = _folders()
    tried = []
    for kind, parent, limit, most in folders:
        folder = parent / f"lowtide-bench-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit).write_text(str(limit_bytes), encoding="ascii")
        except OSError as error:
            tried.append(f"{kind}: {error.strerror} ({folder})")
            with suppress(OSError):
                folder.rmdir()
            continue
        try:
            yield Limit(kind, folder, folder / most)
        finally:
            with suppress(OSError):
                folder.rmdir()
        return
    raise LimitRefused(
        "a process cannot be limited here: " + ("; ".join(tried) or "there is no cgroup with a memory controller"),
        way_out="run it as root; or give --memory 0 within a limit, as: systemd-run --scope -p MemoryMax=1G lowtide "
        "bench state --memory 0",
    )


def _folders() -> list[tuple[str, Path, str, str]]:
    """Return where a cgroup may be made: kind, parent, and the names of its limit and of the most it had."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    found = []
    for _, mounted, kind, options, *_ in mounts:
        at = Path(mounted)
        if kind == "cgroup" and "memory" in options.split(","):
            found.append(("cgroup v1", at, "memory.limit_in_bytes", "memory.max_usage_in_bytes"))
        elif kind == "cgroup2" and "memory" in _words(at / "cgroup.subtree_control"):
            found.append(("cgroup v2", at, "memory.max", "memory.peak"))
    return found


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []
