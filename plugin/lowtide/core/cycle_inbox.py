"""The inbox of one worker for a segment whose records come round again: the first in the order goes first.

On a cycle a wrong guess comes back. Were frames dealt with as they come, an item that is wrong would go round, and its
tombstone after it; each of the two repairs what it meets, which sends more pairs after them: with functions whose
results hang on the order, more come round than were sent. So here records wait one by one instead of frames:

* an item that waits and its tombstone take each other away, and cause nothing;
* those first in the order go first, a portion in each turn of the host's loop; what is nearest to min time can be wrong
  no more;
* the portion, like the window, follows what repairs cost: down to one record.

A frame is acknowledged, at each of its ticks, when its last record there has been dealt with or taken away (R5).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from lowtide.core.early_frames import CHEAP, COSTLY, Optimism
from lowtide.core.effects import Frame
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of
from lowtide.core.operators.state.group import SPARE

FIRST_PORTION = 64
"""Records that are dealt with in one turn, to begin with."""
MAX_PORTION = 4_096

_Position = tuple[bytes, int]
"""Order key and exchange."""


class _Came:
    """A frame of which records wait; `left` is how many at each tick."""

    __slots__ = ("frame", "left")

    def __init__(self, frame: Frame, left: dict[int, int]) -> None:
        self.frame = frame
        self.left = left


class _Row:
    """A record or tombstone that waits."""

    __slots__ = ("came", "index", "tombstone")

    def __init__(self, came: _Came, index: int, tombstone: bool) -> None:
        self.came = came
        self.index = index
        self.tombstone = tombstone


class CycleInbox:
    """The records of one segment that one worker has not dealt with. Pure.

    Args:
        optimism: How far ahead of min time they are worth a guess.
        max_bytes: How much waits within the window at most; beyond it the window is not heeded (R8), as in `Early`.
    """

    def __init__(self, optimism: Optimism, max_bytes: int) -> None:
        self._optimism = optimism
        self._max_bytes = max_bytes
        self._rows: dict[_Position, list[_Row]] = {}
        """Items that wait at a place: one, one tombstone, or a tombstone and its replacement."""
        self._positions: list[_Position] = []
        """A heap of `_rows`; as many positions of which all has been taken away may be left in it, and `SPARE`."""
        self._bytes = 0
        self._portion = FIRST_PORTION

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def first_tick(self) -> int | None:
        """The lowest tick of what waits; None if nothing does."""
        self._tidy()
        return tick_of(self._positions[0][0]) if self._positions else None

    def take(self, frames: Sequence[Frame], _min_time: int) -> list[list[Frame]]:
        """Take frames in the order they came; return what is only to be acknowledged: `go_on` has the records."""
        over: list[Frame] = []
        for frame in frames:
            self._put(frame, over)
        return _by_exchange(over)

    def due(self, _min_time: int) -> list[list[Frame]]:
        """Nothing: `go_on` gives what lies in the window, in portions."""
        return []

    def unfinished(self, min_time: int) -> bool:
        """Return whether something lies in the window."""
        self._tidy()
        return bool(self._positions) and tick_of(self._positions[0][0]) < self._end(min_time)

    def go_on(self, min_time: int) -> list[list[Frame]]:
        """Give the next portion: by exchange, each in the order, with what is to be acknowledged after it."""
        end, rows, positions = self._end(min_time), self._rows, self._positions
        found: dict[int, list[tuple[bytes, _Row]]] = {}
        count = 0
        while positions and count < self._portion and tick_of(positions[0][0]) < end:
            position = heappop(positions)
            for row in rows.pop(position, ()):
                found.setdefault(position[1], []).append((position[0], row))
                count += 1
        self._bound()
        return [self._group(vertex, listed) for vertex, listed in found.items()]

    @property
    def restless(self) -> bool:
        """Return whether something waits that an idle worker should process."""
        return bool(self._rows) and self._optimism.pays

    def rest(self, min_time: int) -> list[list[Frame]]:
        """Give what lies in a wider window, to a worker that has nothing else to do; only if `restless`."""
        if not self.unfinished(min_time):
            self._optimism.widen()
        return self.go_on(min_time)

    def worked(self, records: int, taken_back: int) -> None:
        """Records of a portion were processed; so many outputs were taken back."""
        share = taken_back / (records + taken_back or 1)
        if share > COSTLY:
            self._portion = max(1, self._portion // 2)
        elif share <= CHEAP:
            self._portion = min(MAX_PORTION, self._portion * 2)

    def _end(self, min_time: int) -> int:
        """The tick below which records are dealt with."""
        end = min_time + self._optimism.ticks
        return end if self._bytes <= self._max_bytes else max(end, (self.first_tick or end) + 1)

    def _tidy(self) -> None:
        positions = self._positions
        while positions and positions[0] not in self._rows:
            heappop(positions)

    def _bound(self) -> None:
        """Leave out the positions of which all has been taken away, once most are such; O(1) for each on average."""
        if len(self._positions) > 2 * len(self._rows) + SPARE:
            self._positions = sorted(self._rows)

    def _put(self, frame: Frame, over: list[Frame]) -> None:
        batch = frame.batch
        flags = batch.flags
        came = _Came(frame, dict.fromkeys(frame.ticks, 0))
        self._bytes += len(frame.payload)
        for index, at in enumerate(batch.ats):
            tombstone = flags is not None and flags[index]
            tick = tick_of(at)
            position = at, frame.vertex
            waiting = self._rows.get(position)
            if waiting is None:
                came.left[tick] += 1
                self._rows[position] = [_Row(came, index, tombstone)]
                heappush(self._positions, position)
            elif tombstone and not waiting[-1].tombstone:
                taken = waiting.pop()
                if not waiting:
                    del self._rows[position]
                    self._bound()
                if taken.came is came:
                    came.left[tick] -= 1  # More of it may follow.
                else:
                    self._done(taken.came, tick, over)
            else:
                came.left[tick] += 1
                waiting.append(_Row(came, index, tombstone))
        for tick in frame.ticks:
            if not came.left[tick]:
                self._settle(came, tick, over)

    def _done(self, came: _Came, tick: int, over: list[Frame]) -> None:
        came.left[tick] -= 1
        if not came.left[tick]:
            self._settle(came, tick, over)

    def _settle(self, came: _Came, tick: int, over: list[Frame]) -> None:
        """All records of a frame at a tick have been dealt with."""
        del came.left[tick]
        frame = came.frame
        over.append(Frame(frame.vertex, frame.target, frame.value, [tick], _NOTHING, b""))
        if not came.left:
            self._bytes -= len(frame.payload)

    def _group(self, vertex: int, listed: list[tuple[bytes, _Row]]) -> list[Frame]:
        """Records as a frame that is not acknowledged itself, and the frames of which they are the last."""
        ats = [at for at, _ in listed]
        batches = [(row.came.frame.batch, row.index) for _, row in listed]
        flags = [row.tombstone for _, row in listed]
        units = [batch.units[index] for batch, index in batches]
        rows = [batch.rows[index] for batch, index in batches]
        batch = Batch(ats, units, rows, flags if True in flags else None)
        over: list[Frame] = []
        for at, row in listed:
            self._done(row.came, tick_of(at), over)
        target = listed[0][1].came.frame.target
        return [Frame(vertex, target, 0, [], batch, b""), *over]


_NOTHING = Batch([], [], [], None, [])


def _by_exchange(frames: Sequence[Frame]) -> list[list[Frame]]:
    found: dict[int, list[Frame]] = {}
    for frame in frames:
        found.setdefault(frame.vertex, []).append(frame)
    return list(found.values())
