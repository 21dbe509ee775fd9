"""The programs that wait for this job's lease, read from ZooKeeper every few seconds, for people to see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.job.standbys import Standby

LOG = logging.getLogger(__name__)
KEPT_S = 4.0
"""Interval of reads."""


class Standbys:
    """The standbys read last; belongs to the service's event loop.

    Args:
        read: Asks ZooKeeper (errors: SnapshotsError).

    Attributes:
        found: Those that wait, the longest first.
    """

    def __init__(self, read: Callable[[], Awaitable[Sequence[Standby]]]) -> None:
        self.found: Sequence[Standby] = ()
        self._read = read
        self._reading: asyncio.Task[None] | None = None
        self._read_s = float("-inf")

    def look(self, now_s: float) -> None:
        """Start reading if what is known is older than `KEPT_S`; call it each second with a monotonic clock's time."""
        if (self._reading is None or self._reading.done()) and now_s - self._read_s >= KEPT_S:
            self._read_s = now_s
            self._reading = asyncio.get_running_loop().create_task(self._take())

    async def close(self) -> None:
        """Wait for a running read: its thread cannot be stopped."""
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def _take(self) -> None:
        try:
            self.found = await self._read()
        except SnapshotsError as error:
            # The job's troubles report that ZooKeeper does not answer.
            LOG.debug("could not read the standbys: %s", error)
