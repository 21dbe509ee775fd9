"""The folder of a life's checkpoints: Spark wants one, no recovery uses it, and it goes with the life.

A driver that is killed leaves its folder, which the job's next life removes. Several jobs, and those of several
ZooKeepers, may have the same parent, so that a folder goes only if it has the job's name and nobody holds its lock.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from lowtide.errors import ConfError
from lowtide.process.folder_locks import locked, remove_if_left

END = re.compile(r"-[a-z0-9_]{8}")
"""What `tempfile` puts behind a job's name: no other job's name ends a folder's name so, as it has no hyphen."""


class CheckpointFolder:
    """A new folder, locked while this process lives.

    Args:
        parent: `spark.checkpoint_folder`.
        job: The job's name.

    Raises:
        ConfError: it cannot be made.
    """

    def __init__(self, parent: Path, job: str) -> None:
        self._job = job
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self.path, self._lock = _new(parent.resolve(), job)
        except OSError as error:
            raise ConfError(
                f"the checkpoint folder cannot be used: {error.strerror or error}",
                where=str(parent.absolute()),
                way_out="set another: [spark].checkpoint_folder",
            ) from error

    def remove_left(self) -> None:
        """Remove what killed lives of this job have left; call it with the job's lease, so that no other life begins.

        One that still ends holds its folder's lock.
        """
        with suppress(OSError):
            for folder in self.path.parent.iterdir():
                if folder.name.startswith(self._job) and END.fullmatch(folder.name, len(self._job)):
                    with suppress(OSError):  # Another user's, or on a file system that has no locks.
                        remove_if_left(folder)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _new(parent: Path, job: str) -> tuple[Path, int | None]:
    """Return a new folder, and a descriptor that holds its lock; None on a file system that has no locks."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{job}-", dir=parent))
        try:
            lock = locked(path)
        except FileNotFoundError:
            continue
        except OSError:  # Nobody else can lock it, or remove it for that.
            return path, None
        # A life of a job of the same name in another ZooKeeper may have removed it before it was locked.
        if lock is not None and path.exists():
            return path, lock
        if lock is not None:
            os.close(lock)
