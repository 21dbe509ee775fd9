"""The folder of a process's Unix sockets: of mode 0700, its own, and removed after its end, however that comes.

It is below the system's folder for temporary files, as its path has to be short, and locked while the process or a fork
of it lives. Whoever makes such a folder removes those that nobody holds: a killed process leaves its own behind.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.process.folder_locks import locked, remove_if_left
from lowtide_tracker.unix import PATH_BYTES, UNIX, listen_at

PREFIX = "lowtide-sockets-"
SHORT = "/tmp"  # noqa: S108 - the folder in it is made by mkdtemp
"""Taken where the folder for temporary files has too long a path."""
NAME_BYTES = 20
"""Room for a socket's name."""
ROOT_BYTES = PATH_BYTES - len(f"/{PREFIX}12345678/") - NAME_BYTES


class SocketsRefused(LowtideError):
    """Set `TMPDIR` to a folder with a short path that the job's user may write to, on a disk of the machine."""

    exit_code = 4


class SocketsFolder:
    """A folder of this process.

    Args:
        root: The folder in which to make it; by default the one for temporary files, or `/tmp` where its path is too
            long.

    Attributes:
        path: Where it is.

    Raises:
        SocketsRefused: it cannot be made, or its path is too long.
    """

    def __init__(self, root: Path | None = None) -> None:
        root = _root() if root is None else root
        size = len(os.fsencode(root))
        if size > ROOT_BYTES:
            raise SocketsRefused(
                f"the path is too long for Unix sockets: {size} bytes, and {ROOT_BYTES} may be",
                where=str(root),
                way_out="set TMPDIR to a folder with a shorter path",
            )
        try:
            self.path, self._lock = _new(root)
        except OSError as error:
            raise SocketsRefused(
                f"a folder for Unix sockets cannot be made: {error.strerror}",
                where=str(root),
                way_out="set TMPDIR to a folder that the job's user may write to",
            ) from error
        self._made = 0
        _remove_dead(root)

    def listen(self, name: str) -> tuple[socket.socket, str]:
        """Listen in it; return the socket and its address, `unix:/path`.

        Args:
            name: What listens, in a few letters.

        Raises:
            SocketsRefused: the system does not allow it.
        """
        self._made += 1
        path = str(self.path / f"{name}-{self._made}")
        try:
            return listen_at(path), f"{UNIX}{path}"
        except OSError as error:
            raise SocketsRefused(
                f"no Unix socket can be opened: {error.strerror}",
                where=str(error.filename or path),
                way_out="set TMPDIR to a folder on a disk of the machine",
            ) from error

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _root() -> Path:
    try:
        root = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise SocketsRefused(
            "there is no folder for temporary files that can be written to, for Unix sockets",
            way_out="set TMPDIR to a folder that the job's user may write to",
        ) from error
    return Path(root if len(os.fsencode(root)) <= ROOT_BYTES else SHORT)


def _new(root: Path) -> tuple[Path, int]:
    """Return a new folder, and a descriptor that holds its lock (errors: OSError)."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        try:
            lock = locked(path)
        except FileNotFoundError:  # Another process has removed it before it was locked.
            continue
        except OSError:
            path.rmdir()
            raise
        if lock is not None and path.exists():
            return path, lock
        if lock is not None:
            os.close(lock)


def _remove_dead(root: Path) -> None:
    """Remove this user's folders whose processes have ended."""
    with suppress(OSError):  # Whoever may write to the root need not be allowed to list it.
        for entry in os.scandir(root):
            with suppress(OSError):  # Another process removes it at the same moment.
                if entry.name.startswith(PREFIX) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    remove_if_left(Path(entry.path))
