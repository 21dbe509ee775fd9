"""Locks on folders that processes make for themselves, and leave behind when they are killed."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path


def locked(path: Path) -> int | None:
    """Return a descriptor that holds a folder's lock until it is closed; None if a process that lives has it.

    Raises:
        OSError: it is gone, it may not be opened, or its file system has no locks.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_if_left(path: Path) -> None:
    """Remove a folder, unless a process that lives holds its lock (errors: as of `locked`)."""
    lock = locked(path)
    if lock is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
