"""Notices the end of the driver program, and frees its lease, so that a standby need not wait for its session's end.

A killed program's session in ZooKeeper lives on until its time-out. The service outlives the program by a moment, on
the same machine, and the kernel tells it of the death. If the whole machine goes down, the time-out remains.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from lowtide_snapshots.errors import SnapshotsError

LOG = logging.getLogger(__name__)
LIMIT_S = 2.0
"""Longest wait at the end of the service until ZooKeeper has freed the lease."""


class DriverEnd:
    """The watch over one driver program; belongs to the service's event loop.

    Args:
        pid: The program's process.
        free: Frees its lease.
    """

    def __init__(self, pid: int, free: Callable[[], Awaitable[None]]) -> None:
        self._pid = pid
        self._free = free
        self._descriptor: int | None = None
        self._freeing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        try:
            self._descriptor = os.pidfd_open(self._pid)
        except OSError:  # It has ended, or the kernel has no such descriptors.
            return
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended)

    async def close(self) -> None:
        """End the watch; a lease that is being freed is, unless ZooKeeper takes too long."""
        self._leave()
        if self._freeing is not None:
            await asyncio.wait([self._freeing], timeout=LIMIT_S)

    def _ended(self) -> None:
        self._leave()
        self._freeing = asyncio.get_running_loop().create_task(self._free_lease())

    async def _free_lease(self) -> None:
        LOG.warning("the driver program, process %d, has ended: freeing its lease", self._pid)
        try:
            await self._free()
        except SnapshotsError as error:
            LOG.warning("could not free the lease, which ends with the program's session: %s", error)

    def _leave(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
