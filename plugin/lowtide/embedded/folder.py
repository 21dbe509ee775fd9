"""The folder that holds the servers' data, logs and records, and the lock on it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lowtide.embedded.errors import FolderInUse

LOCK_TIMEOUT_S = 120.0
LOCK_POLL_S = 0.1
# A list, an escape and a variable, in the servers' property files.
SPECIAL = frozenset(",\\$")


def make_folder(folder: Path) -> None:
    """Make the folder, invisible to git: its content is data, never source.

    Raises:
        FolderInUse: something else is in its place, it may not be made, or its path means something to the servers.
    """
    if wrong := sorted(SPECIAL & set(str(folder.absolute()))):
        raise FolderInUse(
            f"the path of the services' folder has {' '.join(wrong)}, which their configuration cannot take",
            where=str(folder.absolute()),
            way_out="set another with [embedded].folder in conf",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise FolderInUse(
            f"cannot use the services' folder: {error.strerror}",
            where=str(folder),
            way_out="set another with [embedded].folder in conf",
        ) from error


@contextmanager
def locked(folder: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold the folder while starting or stopping servers in it; the kernel lets go when the holder dies.

    Raises:
        FolderInUse: another process held it for `timeout_s`.
    """
    descriptor = os.open(folder / "services.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + timeout_s
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 20, 0).decode().strip() or "unknown"
                raise FolderInUse(
                    f"process {holder} has been starting or stopping the services for {timeout_s:.0f} s",
                    where=str(folder),
                    way_out="wait for that process, or kill it",
                )
            time.sleep(LOCK_POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
