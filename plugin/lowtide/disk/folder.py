"""The folder of a host's state: `FOLDER/JOB/INCARNATION/HOST`, locked while its process lives.

Nothing in it is of use to a later life, torn or sound: it is at some tick above the commit that this begins from. So a
host that starts removes the folders of the dead ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

from lowtide.errors import LowtideError

LOCK = "lock"
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs", "lustre", "gpfs"})
"""File systems over a network: a mapped file there may fail or differ at any moment."""


class FolderRefused(LowtideError):
    """Name another folder in `state.folder`."""

    exit_code = 4


class StateFolder:
    """A folder of one process.

    Args:
        root: `state.folder`.
        job: The job's name.
        incarnation: The life's number.
        host: The process's name in it.
    """

    def __init__(self, root: Path, job: str, incarnation: int, host: str) -> None:
        self._root = root.absolute()
        self.path = self._root / job / str(incarnation) / host.replace("/", "-")
        kind = file_system_of(self._root)
        if kind in NETWORK:
            raise FolderRefused(
                f"state cannot be on a network's file system ({kind})",
                where=str(self._root),
                way_out="set state.folder to a folder on a disk of each machine",
            )
        lock = None
        try:
            if self.path.exists():
                _remove_if_dead(self.path)  # Of another job's beginnings, whose ZooKeeper is gone.
            self.path.mkdir(mode=0o700, parents=True)
            lock = _locked(self.path)
        except OSError as error:
            raise FolderRefused(
                f"the folder for state cannot be made: {error.strerror}",
                where=str(self.path),
                way_out="set state.folder to a folder that every executor may write to",
            ) from error
        assert lock is not None, "nobody else has this folder"
        self._lock = lock
        _remove_dead(self._root / job, incarnation)

    def close(self) -> None:
        """Remove it."""
        _remove(self.path)
        os.close(self._lock)
        for parent in self.path.parents[:2]:
            with suppress(OSError):  # Others are still there.
                parent.rmdir()


def file_system_of(path: Path) -> str:
    """Return the kind of file system that a path is, or would be, on; empty if it is not known."""
    there = next(each for each in (path, *path.parents) if each.exists()).resolve()
    best, kind = "", ""
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
            _, mounted, its_kind, *_ = line.split()
            at = mounted.encode().decode("unicode_escape")
            if len(at) >= len(best) and (there == Path(at) or Path(at) in there.parents):
                best, kind = at, its_kind
    return kind


def _remove_dead(job: Path, own: int) -> None:
    """Remove the folders of a job's processes that have died, but in this life: there some are just being made."""
    for life in job.iterdir():
        if life.name == str(own):
            continue
        for folder in life.glob("*"):
            with suppress(OSError):  # Another host removes it at the same moment, or it is another user's.
                _remove_if_dead(folder)
        with suppress(OSError):  # One of its processes lives.
            life.rmdir()


def _remove_if_dead(folder: Path) -> None:
    lock = _locked(folder)
    if lock is not None:
        _remove(folder)
        os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return a descriptor that holds a folder's lock until it is closed; None if a process that lives has it."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(folder: Path) -> None:
    """Remove a folder, the lock last: nobody else takes it meanwhile."""
    for each in folder.iterdir():
        if each.name != LOCK:
            each.unlink()
    shutil.rmtree(folder, ignore_errors=True)
