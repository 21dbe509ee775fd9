"""Frames that come too early to be worth a guess: they wait outside the worker as if still on their way.

Processing records of one front long before another front's of the same time is in vain: most of it is taken
back. Such records could not have passed a barrier either, before min time has come to them. So those further ahead of
min time than a window (`Optimism`) wait here, and are dealt with together when it has come near, or when
there is nothing else to do. A frame that waits is not acknowledged, so nothing passes it that would not pass one on its
way; this bounds optimism as moving time windows do in optimistic simulation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import groupby

from lowtide.core.effects import Frame
from lowtide.core.operators.order.batch import Batch


class Early:
    """The frames that have come to one worker and lie ahead of its window.

    Args:
        optimism: The window; None for no limit.
        max_bytes: How much is held. Beyond it the lowest ticks are let go, window or not: what min time waits for may
            itself wait for a worker that reads no more; and one that reads on for ever holds nobody back.
    """

    def __init__(self, optimism: Optimism | None, max_bytes: int) -> None:
        self._optimism = optimism
        self._max_bytes = max_bytes
        self._held: list[tuple[int, int, Frame, int]] = []
        """A heap of (lowest tick, arrival, frame, size in bytes)."""
        self._bytes = 0
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def first_tick(self) -> int | None:
        """The lowest tick that is held; None if nothing is."""
        return self._held[0][0] if self._held else None

    def take(self, frames: Sequence[Frame], min_time: int) -> list[list[Frame]]:
        """Take frames in the order they came; return what `due` does."""
        if self._optimism is None:
            return _by_vertex(frames)
        end = min_time + self._optimism.ticks
        if not self._held and all([frame.ticks[-1] < end for frame in frames]):
            return [list(frames)] if len(frames) == 1 else _by_vertex(frames)
        for frame in frames:
            self._arrivals += 1
            self._hold(self._arrivals, frame, len(frame.payload))
        return self.due(min_time)

    def due(self, min_time: int) -> list[list[Frame]]:
        """Return what lies in the window now: by exchange, in the order it came; O(log n) for each frame returned.

        A frame that lies partly beyond is cut in two: its value is folded at each tick on its own.
        """
        if not self._held or self._optimism is None:
            return []
        window = self._optimism.ticks
        end = min_time + window
        below = self._below(end)
        while self._bytes > self._max_bytes:
            end = max(end, self._held[0][0]) + window
            below += self._below(end)
        # An item and its tombstone have one tick, so they leave together, in the order they came.
        below.sort(key=lambda entry: entry[0])
        return _by_vertex([frame for _, frame in below])

    def worked(self, records: int, taken_back: int) -> None:
        """Note processed records, for the window."""

    @property
    def restless(self) -> bool:
        """Return whether something is held that an idle worker should process."""
        return bool(self._held) and self._optimism is not None and self._optimism.pays

    def rest(self, min_time: int) -> list[list[Frame]]:
        """Return what lies in a wider window, for an idle worker; only if `restless`."""
        assert self._optimism is not None, "nothing is held without a window"
        self._optimism.widen()
        return self.due(min_time)

    def _below(self, end: int) -> list[tuple[int, Frame]]:
        """Release everything below a tick, each frame with its arrival."""
        below: list[tuple[int, Frame]] = []
        rests: list[tuple[int, Frame, int]] = []
        while self._held and self._held[0][0] < end:
            _, arrival, frame, size = heappop(self._held)
            self._bytes -= size
            now, later = _cut(frame, end)
            below.append((arrival, now))
            if later is not None:
                rests.append((arrival, later, size * len(later.batch) // len(frame.batch)))
        for arrival, rest, size in rests:
            self._hold(arrival, rest, size)
        return below

    def _hold(self, arrival: int, frame: Frame, size: int) -> None:
        self._bytes += size
        heappush(self._held, (frame.ticks[0], arrival, frame, size))


def _cut(frame: Frame, end: int) -> tuple[Frame, Frame | None]:
    """Cut a frame into what lies below a tick, which is not empty, and the rest."""
    ticks = frame.ticks
    if ticks[-1] < end:
        return frame, None
    at = bisect_left(ticks, end)
    below, beyond = frame.batch.cut(end)
    return _part(frame, ticks[:at], below), _part(frame, ticks[at:], beyond)


def _part(frame: Frame, ticks: list[int], batch: Batch) -> Frame:
    return Frame(frame.vertex, frame.target, frame.value, ticks, batch, frame.payload)


def _by_vertex(frames: Iterable[Frame]) -> list[list[Frame]]:
    return [list(group) for _, group in groupby(frames, _vertex)]


def _vertex(frame: Frame) -> int:
    return frame.vertex


FIRST_WINDOW_MS = 50
"""The window, in ticks, with which a worker begins."""
PERIOD_RECORDS = 64
"""The work after which the share taken back is checked; earlier work counts half."""
COSTLY = 0.25
"""The share of work taken back above which the window is halved."""
CHEAP = 0.125
"""The share up to which it may be doubled."""
MAX_TICKS = 1 << 40


class Optimism:
    """One worker's window. Pure.

    Args:
        ticks: Its initial size, at least 1.

    Attributes:
        ticks: The distance ahead of min time, exclusive, up to which records are worth a guess; at least 1, so that
            what min time waits for is never held.
    """

    __slots__ = ("_taken_back", "_work", "ticks")

    def __init__(self, ticks: int) -> None:
        assert ticks >= 1, "a worker that holds the lowest tick would wait for itself"
        self.ticks = ticks
        self._work = 0.0
        self._taken_back = 0.0

    def worked(self, records: int, taken_back: int) -> None:
        """Note processed records, and the number of outputs taken back, replaced or not."""
        self._work += records + taken_back
        self._taken_back += taken_back
        if self._work < PERIOD_RECORDS:
            return
        if self._taken_back > COSTLY * self._work:
            self.ticks = max(1, self.ticks // 2)
        self._work /= 2
        self._taken_back /= 2

    @property
    def pays(self) -> bool:
        """Return whether guesses have lately cost little, so that the window may grow."""
        return self._taken_back <= CHEAP * self._work and self.ticks < MAX_TICKS

    def widen(self) -> None:
        """Double the window, for an idle worker."""
        self.ticks *= 2
