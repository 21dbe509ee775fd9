"""A job's lives and commits in ZooKeeper: read while the page is open, and kept for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.job.life import Life

LOG = logging.getLogger(__name__)
KEPT_S = 4.0
FIRST_LIMIT_S = 1.0
"""The time that the first caller may wait for ZooKeeper; later ones do not wait."""

Read = Callable[[], Awaitable[tuple[Sequence[Life], Sequence[Commit]]]]
"""A function that asks ZooKeeper (errors: SnapshotsError)."""


class Records:
    """The last lives and commits read; belongs to the service's event loop.

    Args:
        read: Asks ZooKeeper for both.

    Attributes:
        lives: The last reports of the last lives, oldest first.
        commits: All, ascending.
    """

    def __init__(self, read: Read) -> None:
        self.lives: Sequence[Life] = ()
        self.commits: Sequence[Commit] = ()
        self._read = read
        self._reading: asyncio.Task[None] | None = None
        self._read_s = float("-inf")
        self._known = False

    async def refresh(self, now_s: float) -> None:
        """Start reading what is older than `KEPT_S`; if nothing is known yet, wait for it a little.

        Args:
            now_s: A monotonic clock's time.
        """
        reading = self._reading
        if (reading is None or reading.done()) and now_s - self._read_s >= KEPT_S:
            self._read_s = now_s
            reading = self._reading = asyncio.get_running_loop().create_task(self._take())
        if reading is not None and not self._known:
            await asyncio.wait([reading], timeout=FIRST_LIMIT_S)

    async def close(self) -> None:
        """Wait for a running read: its thread cannot be stopped."""
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def _take(self) -> None:
        try:
            self.lives, self.commits = await self._read()
            self._known = True
        except SnapshotsError as error:
            # The job's troubles report that ZooKeeper does not answer; the page keeps what it knows.
            LOG.debug("could not read lives and commits for the page: %s", error)
