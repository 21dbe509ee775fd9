"""Idle fronts: the service acts for a partition until its worker comes (R2, R3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from lowtide.assignment.welcome import FrontStart
from lowtide.core.fronts.floors import LAST_TICK, Steps
from lowtide.errors import LifeEnded
from lowtide.process.tracker_line import TrackerLine
from lowtide.status.gauges import FrontGauges
from lowtide_snapshots.cause import Cause
from lowtide_tracker import Floor, LocalTracker

SERVICE_WORKER = 0xFFFF
"""The service's own number among the workers."""
POLL_S = 0.005
HAND_OVER_LIMIT_S = 30.0


class IdleFronts:
    """Heartbeats of fronts without a worker, on the service's own line to the tracker; belongs to one event loop.

    Args:
        line: The line to the tracker.
        local: Its local tracker, of `SERVICE_WORKER`.
        on_min_time: Called with each global min time received.
        on_lost: Called with the reason when the line is gone for good.
        end: The tick of the end of time.

    Attributes:
        floors: All floors that the tracker has announced since the life began, as far as no commit covers them.
        requested: The number of the last snapshot request received; 0 before the first. The floors that its T rests on
            are in `floors`.
    """

    def __init__(
        self,
        line: TrackerLine,
        local: LocalTracker,
        *,
        on_min_time: Callable[[int], None],
        on_lost: Callable[[Cause], None],
        end: int = LAST_TICK,
    ) -> None:
        self._end = end
        self.floors = Steps()
        self.requested = 0
        self._line = line
        self._local = local
        self._on_min_time = on_min_time
        self._on_lost = on_lost
        self._fronts: dict[int, FrontStart] = {}
        self._loop = asyncio.get_running_loop()
        self._watched: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def connect(self) -> None:
        """Connect for the first time: to hear of the global min time alone."""
        self._line.listen((), global_min=True)
        self._line.connect()
        self._watch()

    def __contains__(self, front: int) -> bool:
        return front in self._fronts

    def add(self, start: FrontStart) -> None:
        """Act for a front from now on."""
        self._fronts[start.number] = start

    def grant(self, front: int, offset: int, tick: int) -> None:
        """Promise that a front labels nothing below `tick`, as long as nothing was read from it (R2)."""
        start = self._fronts.get(front)
        if start is None or offset != start.offset or tick <= start.opening:
            return
        if start.stop is not None and tick >= self._end:
            # Closed for good, which rests on no floor; a later owner begins at its stop.
            self._fronts[front] = msgspec.structs.replace(start, offset=max(offset, start.stop))
            self._local.heartbeat(front, self._end)
            return
        self._fronts[front] = msgspec.structs.replace(start, opening=tick, floors=[(offset, tick)])
        self._local.floor(Floor(front, offset, tick))
        self._local.heartbeat(front, tick)

    def promised(self) -> dict[int, FrontGauges]:
        """Return by front the tick below which it labels nothing, and the offset that it expects."""
        return {
            number: FrontGauges(front=number, heartbeat=start.opening, next_offset=start.offset)
            for number, start in self._fronts.items()
        }

    def forget_floors(self, front: int, offset: int) -> None:
        """Drop floors that a committed manifest makes unnecessary."""
        self.floors.cut(front, offset)
        self._local.forget_floors(front, offset)

    def flush(self) -> None:
        """Send the tracker what was promised since the last flush."""
        if not self._closed:
            self._line.flush(self._local.flush())
            self._watch()

    def open(self, front: int, floor: int, feeds: Sequence[int] | None = None) -> int:
        """Open a front that was not registered when the life began; return the tick below which it labels nothing.

        Its records go to the segments ``feeds``; None for all that nothing else feeds.

        Raises:
            ConnectionLost: there is no tracker to ask; ask again soon.
            LifeEnded: the tracker refuses.
        """
        try:
            return self._line.open_front(front, floor, feeds)
        finally:
            self._watch()

    async def hand_over(self, front: int) -> FrontStart:
        """Stop acting for a front; return its start for its worker, once the tracker knows all promises.

        Raises:
            LifeEnded: the tracker does not answer.
        """
        start = self._fronts.pop(front)
        deadline = time.monotonic() + HAND_OVER_LIMIT_S
        self.flush()
        # Our last heartbeat of the front must come before the worker's first. Later flushes do not have it.
        last = None if self._local.unflushed else self._local.flushed
        while last is None or any(flush.number <= last for flush in self._local.unacknowledged()[:1]):
            if self._closed or time.monotonic() > deadline:
                raise LifeEnded(f"the tracker has applied nothing for {HAND_OVER_LIMIT_S:g} s")
            await asyncio.sleep(POLL_S)
            self.flush()
            if last is None and not self._local.unflushed:
                last = self._local.flushed
        return start

    def close(self) -> None:
        """Close the line."""
        self._closed = True
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        self._line.close()

    # -- the line --------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        try:
            notices = self._line.receive()
        except LifeEnded as error:
            self._lose(error)
            return
        for notice in notices:
            if self._local.hear(notice):
                self.floors.merge(notice.floors)
            if notice.request is not None:
                self.requested = max(self.requested, notice.request.number)
        if notices:
            self._on_min_time(self._local.global_min)
        self._watch()

    def _watch(self) -> None:
        """Watch the line; while there is none, reconnect."""
        descriptors = set(self._line.descriptors())
        if descriptors != self._watched:
            self._unwatch()
            for descriptor in descriptors:
                self._loop.add_reader(descriptor, self._hear)
            self._watched = descriptors
        if not descriptors and self._timer is None and not self._closed:
            self._timer = self._loop.call_later(POLL_S, self._mend)

    def _unwatch(self) -> None:
        for descriptor in self._watched:
            self._loop.remove_reader(descriptor)
        self._watched = set()

    def _mend(self) -> None:
        self._timer = None
        try:
            self._line.mend(time.monotonic())
        except LifeEnded as error:
            self._lose(error)
            return
        self._watch()

    def _lose(self, error: LifeEnded) -> None:
        self._unwatch()
        self._closed = True
        self._on_lost(error.cause())
