"""The programs that wait for this job's lease, read from ZooKeeper every few seconds, for people to see.

The job is handed over to one of them by a signal to its driver program.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence

from lowtide.errors import LowtideError
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.job.standbys import Standby

LOG = logging.getLogger(__name__)
KEPT_S = 4.0
"""Interval of reads."""
HAND_OVER = signal.SIGUSR1
"""To the driver program: stop, for a standby to continue the job. Only the service sends it, as a standby waits."""


class NoStandby(LowtideError):
    """Start a standby and wait until it is ready, or stop the job without handing it over."""

    exit_code = 4


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

    async def ready(self, job: str) -> None:
        """Read them now, and see that one could take over at once.

        Raises:
            NoStandby: none could.
            SnapshotsError: ZooKeeper does not answer.
        """
        self.found = await self._read()
        refuse_without(job, self.found)

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


def refuse_without(job: str, standbys: Sequence[Standby]) -> None:
    """Refuse to hand a job over if none of its standbys could take over at once.

    Raises:
        NoStandby: says whether there are any.
    """
    if any(each.ready for each in standbys):
        return
    starting = "; ".join(each.holder for each in standbys)
    why = f"its standby still starts: {starting}" if starting else "no standby waits"
    wait = f"wait until `lowtide status {job}` shows it as ready"
    start = "start one on another host: lowtide run flow.py --standby --detach"
    raise NoStandby(
        f'job "{job}" is not handed over: {why}',
        where="its standbys, in ZooKeeper",
        way_out=f"{wait if starting else start}; or stop the job without --hand-over",
    )
