"""Notices the end of the driver program, and frees its lease, so that a standby need not wait for its session's end.

A killed program's session in ZooKeeper lives on until its time-out. The service outlives the program by a moment, on
the same machine, and the kernel tells it of the death. The program names its lease before it takes it, so it may die at
any step after that, also before its life has begun. If the whole machine goes down, the time-out remains.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable

from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide_snapshots.errors import SnapshotsError

LOG = logging.getLogger(__name__)
LIMIT_S = 2.0
"""Longest wait at the end of the service until ZooKeeper has freed the lease."""
LEASES_KEPT = 8
"""The leases that were named last: each life of a program has its own, and a start that is refused leaves one."""


def freed(zookeeper: ZooKeeperAccess, job: str, lease: str) -> bool:
    """Free a lease, by its token; return whether it was held. It blocks for a few ms, longer if ZooKeeper is away.

    Raises:
        SnapshotsError: ZooKeeper does not answer, or refuses.
    """
    with zookeeper.store(job) as store:
        return store.free_lease(lease)


class DriverEnd:
    """The watch over one driver program; belongs to the service's event loop.

    Args:
        pid: The program's process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._leases: deque[Callable[[], bool]] = deque(maxlen=LEASES_KEPT)
        self._descriptor: int | None = None
        self._freeing: asyncio.Task[None] | None = None

    def frees(self, free: Callable[[], bool]) -> None:
        """Have a lease of the program freed, by what says whether it was held; it is called in a thread."""
        self._leases.appendleft(free)

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
        self._freeing = asyncio.get_running_loop().create_task(self._free_leases())

    async def _free_leases(self) -> None:
        for free in tuple(self._leases):
            try:
                held = await asyncio.to_thread(free)
            except SnapshotsError as error:
                LOG.warning("could not free the lease, which ends with the program's session: %s", error)
                return
            if held:
                LOG.warning("the driver program, process %d, has ended: freed its lease", self._pid)
                return

    def _leave(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
