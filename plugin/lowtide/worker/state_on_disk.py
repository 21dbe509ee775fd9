"""The state on disk of a host: its folder and store, the shelves of its workers, and the pins of snapshots."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lowtide.assignment.deployment import DiskSetting
from lowtide.core.operators.state.shelf import Shelves
from lowtide.disk.copies import LocalCopies
from lowtide.disk.folder import StateFolder
from lowtide.disk.pins import PinnedStore, Pins, ReaderDied
from lowtide.disk.store import DiskStore
from lowtide.status.gauges import DiskGauges
from lowtide_snapshots.format.names import incarnation_of

CROWDED_SHARE = 0.9
"""From this share of its limit on, a snapshot may not make it grow..."""
GROWN_SHARE = 0.01
"""...by more than this share: while it is pinned, what is freed is not used again."""
PIN_LIMIT_S = 10.0
"""The time that pinning may take: nothing is written meanwhile, so what would be stays in memory."""


class StateOnDisk:
    """The state on disk of one host.

    Args:
        setting: Where it is.
        job: The job's name.
        incarnation: The life's number.
        host: The host's number in it.

    Attributes:
        copies: The machine's copies of parts; None if it is to have none.
        shelves: Those of its workers.
        given_up: The number of snapshots that were given up for lack of room.
    """

    def __init__(self, setting: DiskSetting, job: str, incarnation: int, host: int) -> None:
        self._folder = StateFolder(Path(setting.folder), job, incarnation, str(host))
        self._store = DiskStore(self._folder.path, setting.max_bytes)
        self._job = job
        self._pins = Pins(self._folder.path, setting.max_bytes)
        self._limit_bytes = setting.max_bytes
        copies_bytes = setting.copies_bytes
        self.copies = LocalCopies(Path(setting.folder), copies_bytes) if copies_bytes else None
        self._asked_s = 0.0
        self._pinned_bytes = 0
        """What was in use when it was pinned last."""
        self.given_up = 0
        self.shelves = Shelves(self._store, setting.memory_bytes)

    def sweep_copies(self, kept: Iterable[str], incarnation: int) -> None:
        """Delete the copies that earlier lives of its job have left, but those of these parts."""
        if self.copies is not None:
            job = self._job
            self.copies.sweep(
                frozenset(kept), lambda name: name.job == job and incarnation_of(name.snapshot) < incarnation
            )

    def fileno(self) -> int:
        """Return what becomes readable when `pinned` may have something to give; -1 if nothing will."""
        return self._pins.fileno()

    @property
    def pinning(self) -> bool:
        """Return whether it has been asked to pin, and `pinned` has given nothing yet."""
        return self._pins.waits

    def pin(self) -> None:
        """Ask for the store as it is now, with what the shelves have in memory.

        Raises:
            ReaderDied: the process that reads has died.
        """
        self.shelves.held = True
        self._asked_s = time.monotonic()
        try:
            self._pins.ask()
        except ReaderDied:
            self.shelves.held = False
            raise

    def pinned(self) -> list[PinnedStore] | None:
        """Return the pinned store, as `Pins.pinned` does; from then on `release` lets the shelves write again.

        Raises:
            ReaderDied: the process that reads has died, or did not answer in time.
        """
        try:
            stores = self._pins.pinned()
            if stores is None and self.pinning and time.monotonic() - self._asked_s > PIN_LIMIT_S:
                self._pins.close()
                raise ReaderDied(f"it did not answer within {PIN_LIMIT_S:g} s")
        except ReaderDied:
            self.shelves.held = False
            raise
        if stores is not None:
            self._pinned_bytes = self._store.used_bytes
        return stores

    @property
    def crowded(self) -> bool:
        """Return whether a snapshot that is being written takes what little room is left."""
        used, limit = self._store.used_bytes, self._limit_bytes
        return used >= CROWDED_SHARE * limit and used - self._pinned_bytes >= GROWN_SHARE * limit

    def greet(self) -> None:
        """Take what the process that reads has said without being asked: that it is there, or that it has gone."""
        with suppress(ReaderDied):  # The next pin begins another one.
            self._pins.pinned()

    def release(self) -> None:
        """Let the shelves write again: the copy of the process that needs their memory as it is has been made."""
        self.shelves.held = False

    @property
    def where(self) -> str:
        """Its folder."""
        return str(self._folder.path)

    @property
    def entries(self) -> int:
        """The number of keys on disk."""
        return self._store.entries

    def gauges(self) -> DiskGauges:
        """Return what is known of it."""
        used, shelves = self._store.used_bytes, self.shelves
        free_bytes, size_bytes = self._room()
        return DiskGauges(
            keys=self.entries,
            bytes=used,
            limit_bytes=self._limit_bytes,
            fullest=used / self._limit_bytes,
            hits=shelves.hits,
            misses=shelves.misses,
            evicted=shelves.evicted,
            given_up=self.given_up,
            folder=self.where if size_bytes else "",
            free_bytes=free_bytes,
            size_bytes=size_bytes,
        )

    def _room(self) -> tuple[int, int]:
        """Return the room that is left on the disk, and its size; 0 if the folder cannot be looked at."""
        try:
            disk = os.statvfs(self._folder.path)
        except OSError:
            return 0, 0
        return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize

    def close(self) -> None:
        """End the process that reads, and remove the folder."""
        self._pins.close()
        self._store.close()
        self._folder.close()
