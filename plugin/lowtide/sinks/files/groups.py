"""Groups of lanes whose records go into the same files: as many files for each period as there are groups, not lanes.

The records of a group are merged by log time, lane and offset. One goes on once nothing that comes before it can
follow, which rows and marks of the other lanes say; so the order does not depend on how the lanes were read (R20).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Self

from lowtide.sinks.files.fold import Fold, Limits, PartsOf, Piece
from lowtide.sinks.staged.contract import StagedRow

WAITING_BYTES = 32 << 20
"""Memory of one group's rows that wait for other lanes, above which all lanes rest but the one that is waited for.

What a carrier was given at once comes on top, as it begins once for each lane of which nothing is known yet, and what
comes of the lane that is waited for, which does not wait itself.
"""
ROW_BYTES = 250
"""Memory of a row beside its value."""

_time_of = itemgetter(StagedRow._fields.index("time_ms"))


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a sink's lanes, each a range of hash units.

    Attributes:
        lanes: The number of lanes when the sink was first opened.
        count: The number of groups, at most as many as lanes.
    """

    lanes: int
    count: int

    @classmethod
    def wanted(cls, lanes: int, workers: int | None) -> Self:
        """Return those of a sink that begins: as many as workers."""
        return cls(lanes, min(lanes, workers or lanes))

    @classmethod
    def said(cls, there: Mapping[str, Any]) -> Self:
        """Return those of a sink that has begun (see `facts`)."""
        if "groups" in there:
            return cls(there["grouped_lanes"], there["groups"])
        return cls(there["lanes"], there["lanes"])

    @property
    def facts(self) -> dict[str, int]:
        """Their note in the place of the files: earlier versions know one group for each lane, and refuse all else."""
        if self.count == self.lanes:
            return {"lanes": self.lanes}
        return {"grouped_lanes": self.lanes, "groups": self.count}

    def of(self, lane: int, lanes: int) -> int:
        """Return a lane's group: all lanes that one is divided into are in its own.

        Args:
            lane: The lane.
            lanes: The number of lanes now, a multiple of what it was.
        """
        return lane * self.lanes // lanes * self.count // self.lanes


@dataclass(slots=True)
class _Lane:
    """A lane, as far as it is known.

    Attributes:
        number: Its number.
        next: The offset after its last row, or from which it is read.
        first_ms: The first log time that was reported; None while unknown.
        known_ms: The log time below which nothing follows.
        waiting: Rows that have not gone on.
        begins: The periods that are not over: the first log time of each, and the offset of its first row.
    """

    number: int
    next: int
    first_ms: int | None = None
    known_ms: int = 0
    waiting: list[StagedRow] = field(default_factory=list)
    begins: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, rows: Sequence[StagedRow], roll_ms: int) -> None:
        """Note the periods that begin with some of the next rows; O(1) if none does."""
        self.next = rows[-1].offset + 1
        end_ms = self.begins[-1][0] + roll_ms if self.begins else -1
        if rows[-1].time_ms < end_ms:
            return
        for row in rows:
            if row.time_ms >= end_ms:
                begin_ms = row.time_ms - row.time_ms % roll_ms
                self.begins.append((begin_ms, row.offset))
                end_ms = begin_ms + roll_ms

    def needed(self, over_ms: int | None) -> int:
        """Return the offset of its first row whose period is not over, or of the next row."""
        begins = self.begins
        while begins and over_ms is not None and begins[0][0] < over_ms:
            begins.popleft()
        return begins[0][1] if begins else self.next


class GroupFold:
    """One group's files.

    Args:
        limits: As of `Fold`.
        parts_of: As of `Fold`.
        offsets: By lane the offset from which it is read.
    """

    def __init__(self, limits: Limits, parts_of: PartsOf | None, offsets: Mapping[int, int]) -> None:
        self._fold = Fold(limits, parts_of)
        self._roll_ms = limits.roll_ms
        self._lanes = {number: _Lane(number, offsets[number]) for number in sorted(offsets)}
        self._alone = len(self._lanes) == 1
        self._last: _Lane | None = None
        """The lane that is waited for: none of its rows to come lies before it. None until all lanes have reported."""
        self._waiting_bytes = 0
        self._resting: frozenset[int] = frozenset()

    @property
    def over_ms(self) -> int | None:
        """The first log time of the group's oldest period that is not over; None while unknown."""
        return self._fold.over_ms

    @property
    def firsts_ms(self) -> list[int]:
        """The first log times that lanes have reported, of those that have."""
        return [lane.first_ms for lane in self._lanes.values() if lane.first_ms is not None]

    def needed(self) -> dict[int, int]:
        """Return by lane the offset of the first record whose period is not over, or of the next record.

        So a fold that begins there has all records from that period's first one on, in all lanes, and no others.
        """
        over_ms = self.over_ms
        return {number: lane.needed(over_ms) for number, lane in self._lanes.items()}

    def take(self, number: int, rows: Sequence[StagedRow]) -> list[Piece]:
        """Take a lane's next records, and return the pieces that are now complete; O(rows and lanes)."""
        if not rows:
            return []
        lane = self._lanes[number]
        lane.note(rows, self._roll_ms)
        lane.waiting += rows
        if not self._alone:
            self._waiting_bytes += _bytes_of(rows)
        return self._know(lane, rows[0].time_ms, rows[-1].time_ms)

    def mark(self, number: int, time_ms: int) -> list[Piece]:
        """Note that none of a lane's records below this log time follows; return the pieces that are now complete."""
        return self._know(self._lanes[number], time_ms, time_ms)

    def resting(self) -> frozenset[int]:
        """Return the lanes of which no more is to be taken until others have come further.

        Never the one that is waited for. Lanes rest until half of what waits has gone on, so that they are not stopped
        and started all the time.
        """
        if self._waiting_bytes > WAITING_BYTES:
            self._resting = frozenset(lane.number for lane in self._lanes.values() if lane.first_ms is not None)
        elif self._waiting_bytes <= WAITING_BYTES // 2:
            self._resting = frozenset()
        if self._resting and self._last is not None:
            self._resting -= {self._last.number}
        return self._resting

    def _know(self, lane: _Lane, first_ms: int, time_ms: int) -> list[Piece]:
        """Note a lane's log time; of the lane that is waited for it moves what waits for it."""
        if lane.first_ms is None:
            lane.first_ms = first_ms
        lane.known_ms = max(lane.known_ms, time_ms)
        if self._last is not None and lane is not self._last:
            return []  # What it has lies after what may come of the last one.
        if self._last is None and any(each.first_ms is None for each in self._lanes.values()):
            return []
        last = self._last = min(self._lanes.values(), key=_place_of)
        return [*self._fold.take(self._passed(last)), *self._fold.mark(last.known_ms)]

    def _passed(self, last: _Lane) -> list[StagedRow]:
        """Take out the rows that lie before all that may follow, in their order."""
        found: list[list[StagedRow]] = []
        for lane in self._lanes.values():
            # At the same log time lanes come by number.
            count = bisect_right(lane.waiting, last.known_ms - (lane.number > last.number), key=_time_of)
            if count == len(lane.waiting):
                found.append(lane.waiting)
                lane.waiting = []
            else:
                found.append(lane.waiting[:count])
                del lane.waiting[:count]
        parts = [each for each in found if each]
        # Each is in order, and a sort by time alone leaves equal times as they are: by lane, then by offset.
        rows = parts[0] if len(parts) == 1 else sorted([row for part in parts for row in part], key=_time_of)
        if not self._alone:
            self._waiting_bytes -= _bytes_of(rows)
        return rows


def _place_of(lane: _Lane) -> tuple[int, int]:
    return lane.known_ms, lane.number


def _bytes_of(rows: Iterable[StagedRow]) -> int:
    return sum([len(row.value) + ROW_BYTES for row in rows])
