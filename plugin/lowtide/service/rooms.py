"""The room on the disks that the service's machine writes to: its log's, and that of snapshots in a folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from lowtide.status.moment import Room

LOOK_EVERY_S = 5.0


class Rooms:
    """Looks at the disks of folders, in a thread: one over a network may not answer.

    Args:
        folders: By what it holds ("log", "snapshots") a folder.

    Attributes:
        found: The disks, as last seen.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.found: list[Room] = []
        self._folders = dict(folders)
        self._look_s = 0.0
        self._looking: asyncio.Future[list[Room]] | None = None

    def look(self, now_s: float) -> None:
        """Begin a look every few seconds, unless the last one still waits; call it each second.

        Args:
            now_s: The monotonic time.
        """
        if self._looking is not None and self._looking.done():
            self.found, self._looking = self._looking.result(), None
        if self._folders and self._looking is None and now_s >= self._look_s:
            self._look_s = now_s + LOOK_EVERY_S
            self._looking = asyncio.get_running_loop().run_in_executor(None, rooms_of, self._folders)


def rooms_of(folders: Mapping[str, Path]) -> list[Room]:
    """Return the disks of folders; a folder that is not there yet counts as its nearest parent that is.

    What cannot be looked at is left out.
    """
    found = []
    for what, folder in folders.items():
        try:
            disk = os.statvfs(next(each for each in (folder, *folder.parents) if each.exists()))
        except OSError:
            continue
        free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        found.append(Room(what, str(folder), free, size))
    return found
