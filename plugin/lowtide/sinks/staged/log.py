"""The staged log of a sink as its carrier reads it, and how far the log is still needed.

From where on a carrier needs the log is reported first, and the log cut after that. What is reported never goes back,
so the log begins after it only if somebody else has deleted records (R24).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from lowtide.errors import LowtideError, ServiceUnavailable
from lowtide.sinks.errors import Overtaken, StagedLost
from lowtide.sinks.staged.contract import Progress, StagedRow
from lowtide.sinks.staged.partitions import ClaimLost, Gone, Piece

LOG = logging.getLogger(__name__)
KEEP_EVERY_S = 1.0
LOOK_EVERY_S = 2.0
"""The time from one question for the log's end to the next."""
ENTRY_BYTES = 64 << 10
"""Rows of one lane that count together when it is noted how much is still needed."""
MARKS = 1_000
"""Marks of one lane that are noted: of more about half is forgotten, so that a little less of the log is cut."""
ROW_BYTES = 500
"""The assumed size of records before any has been read."""


class Topic(Protocol):
    """The topic of a staged log, as `lowtide.sinks.staged.partitions.Partitions` is one."""

    lanes: range
    next: dict[int, int]
    name: str
    where: str

    def claim(self) -> dict[int, Progress]:
        """See there."""

    def reported(self) -> dict[int, Progress]:
        """See there."""

    def report(self, progress: Mapping[int, Progress]) -> None:
        """See there."""

    def begins(self) -> dict[int, int]:
        """See there."""

    def ends(self) -> dict[int, int]:
        """See there."""

    def cut(self, offsets: Mapping[int, int]) -> None:
        """See there."""

    def assign(self, offsets: Mapping[int, int]) -> None:
        """See there."""

    def rest(self, lanes: Collection[int]) -> None:
        """See there."""

    def read(self, wait_s: float) -> list[Piece]:
        """See there."""

    def close(self) -> None:
        """See there."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part of a log that its carrier still needs.

    All figures are about right: Kafka's own records count among those that have not been read.

    Attributes:
        records: Number of records that have not been read.
        unread_bytes: Size of their keys and values, by the size of those that have been read; without lanes that rest,
            which wait for log time, as what has been read may, and not for the store.
        bytes: Size of all that has not been read, and of what has been and is still needed.
    """

    records: int = 0
    unread_bytes: int = 0
    bytes: int = 0


class StagedLog:
    """One staged log; belongs to one thread.

    Args:
        topic: Its topic, closed at the end.
    """

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._kept: dict[int, Progress] = {}
        """By lane what has been reported, by whichever carrier."""
        self._claimed = False
        self._cut: dict[int, int] = {}
        """By lane the offset below which the log is cut."""
        self._keep_at_s = self._look_at_s = -math.inf
        self._ends: dict[int, int] = {}
        self._unneeded: dict[int, deque[list[int]]] = {lane: deque() for lane in topic.lanes}
        """By lane the rows that were read and are still needed: pairs of the offset after some, and their bytes."""
        self._rows_end: dict[int, int] = {}
        """By lane the offset after the last row that was read, or from which it is read."""
        self._marks: dict[int, deque[tuple[int, int]]] = {lane: deque() for lane in topic.lanes}
        """By lane the log times and offsets of marks after that row, both ascending."""
        self._read_rows = self._read_bytes = self._needed_bytes = 0
        self._grumbled = False
        self._resting: frozenset[int] = frozenset()
        self._held: frozenset[int] = frozenset()

    # -- before reading --------------------------------------------------------------------------------------------

    def kept(self) -> dict[int, Progress]:
        """Return by lane what carriers have reported, or the log's beginning (errors: ServiceUnavailable)."""
        self._claim()
        self._cut = self._topic.begins()
        self._kept = {lane: Progress(begin) for lane, begin in self._cut.items()} | self._kept
        return dict(self._kept)

    def begin(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets on, by lane.

        Raises:
            StagedLost: the log begins after one of them.
            Overtaken: so it does, since another carrier has taken the records on meanwhile.
            ServiceUnavailable: Kafka does not answer.
        """
        begins = self._topic.begins()
        for lane in self._topic.lanes:
            if offsets[lane] < begins[lane]:
                raise self._missing(lane, offsets[lane], begins[lane])
        self._topic.assign(offsets)
        self._rows_end = {lane: offsets[lane] for lane in self._topic.lanes}

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, wait_s: float) -> list[Piece]:
        """Return what is there, or comes first within a time: per lane in order.

        Raises:
            StagedLost: records that come next are gone.
            Overtaken: so they are, since another carrier has taken them on.
            ServiceUnavailable: Kafka refuses to be read.
        """
        try:
            pieces = self._topic.read(wait_s)
        except Gone as gone:
            if gone.topic:
                raise self._lost(gone.lane, "is gone") from gone
            raise self._missing(gone.lane, self._topic.next[gone.lane], self._topic.begins()[gone.lane]) from gone
        for piece in pieces:
            self._count(piece.lane, piece.rows)
            self._note(piece)
        return pieces

    def rest(self, lanes: Collection[int]) -> None:
        """Read none of these lanes until the next call (errors: ServiceUnavailable)."""
        self._pause(frozenset(lanes), self._held)

    def hold(self, lanes: Collection[int]) -> None:
        """Read none of these lanes until the next call: unlike those that rest they wait for the store, and count.

        Raises:
            ServiceUnavailable: Kafka does not answer.
        """
        self._pause(self._resting, frozenset(lanes))

    def ends(self) -> dict[int, int]:
        """Return by lane the offset before which a reader gets everything now (errors: ServiceUnavailable)."""
        return self._topic.ends()

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Return whether everything before these offsets has been returned, but for lanes that rest."""
        return all(self._topic.next[lane] >= end for lane, end in ends.items() if lane not in self._resting)

    # -- what is no longer needed ----------------------------------------------------------------------------------

    def beyond_marks(self, progress: Mapping[int, Progress]) -> dict[int, Progress]:
        """Return progress by which of a lane without rows only the last mark is needed that what is visible rests on.

        A lane that the next carrier begins there is no further than what is visible now, as it was after its last row.
        """
        return {lane: self._beyond_marks(lane, each) for lane, each in progress.items()}

    def keep(self, progress: Mapping[int, Progress], now_s: float) -> None:
        """Report how far the lanes are, then cut the log below; each second at most, and only what has moved.

        Without an answer it is tried again with a later call.

        Args:
            progress: By lane how far it is.
            now_s: Monotonic clock, s; infinite to do it now.
        """
        if now_s < self._keep_at_s or not (self._moved(progress) or self._uncut()):
            return
        if now_s < math.inf:
            self._keep_at_s = now_s + KEEP_EVERY_S
        try:
            self._report(progress)
        except ClaimLost:
            self._claimed = False  # Another carrier has begun; the next call asks how far that one is.
            return
        except ServiceUnavailable as error:
            self._claimed = False
            if not self._grumbled:
                LOG.warning("could not store how far the log is needed, and cut it: %s", error)
            self._grumbled = True
            return
        self._grumbled = False
        for lane, each in self._kept.items():
            entries = self._unneeded[lane]
            while entries and entries[0][0] <= each.needed:
                self._needed_bytes -= entries.popleft()[1]

    def backlog(self, now_s: float) -> Backlog:
        """Return what the carrier still needs, as far as Kafka has said; asks it each `LOOK_EVERY_S`."""
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            try:
                self._ends = self.ends()
            except ServiceUnavailable as error:
                LOG.warning("could not ask for the log's end: %s", error)
        position = self._topic.next or {lane: each.needed for lane, each in self._kept.items()}
        unread = {lane: max(0, end - position[lane]) for lane, end in self._ends.items()}
        coming = sum(records for lane, records in unread.items() if lane not in self._resting)
        records = sum(unread.values())
        return Backlog(records, self._size(coming), self._needed_bytes + self._size(records))

    def close(self) -> None:
        """Stop reading."""
        self._topic.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """See what other carriers have reported, none of which can report from now on."""
        self._kept |= self._topic.claim()
        self._claimed = True

    def _pause(self, resting: frozenset[int], held: frozenset[int]) -> None:
        if (resting, held) != (self._resting, self._held):
            self._topic.rest(resting | held)
            self._resting, self._held = resting, held

    def _moved(self, progress: Mapping[int, Progress]) -> dict[int, Progress]:
        """Return the lanes that are further than was reported; none while another lane is not as far.

        Nothing that was reported is taken back, and lanes of two carriers are not mixed: a store may have to do
        something once all lanes have passed a time, which neither of them has seen then.
        """
        if not all(_as_far(each, self._kept[lane]) for lane, each in progress.items()):
            return {}
        return {lane: each for lane, each in progress.items() if each != self._kept[lane]}

    def _uncut(self) -> dict[int, int]:
        return {lane: each.needed for lane, each in self._kept.items() if each.needed > self._cut[lane]}

    def _report(self, progress: Mapping[int, Progress]) -> None:
        if not self._claimed:
            self._claim()
        if moved := self._moved(progress):
            self._topic.report(moved)
            self._kept |= moved
        if uncut := self._uncut():
            self._topic.cut(uncut)
            self._cut |= uncut

    def _beyond_marks(self, lane: int, progress: Progress) -> Progress:
        needed, visible_ms = progress.needed, progress.visible_ms
        if visible_ms is None or needed < self._rows_end[lane]:
            return progress
        marks = self._marks[lane]
        while len(marks) > 1 and marks[1][0] <= visible_ms:
            marks.popleft()
        if marks and marks[0][0] <= visible_ms:
            needed = max(needed, marks[0][1])
        return Progress(needed, visible_ms)

    def _note(self, piece: Piece) -> None:
        marks = self._marks[piece.lane]
        if piece.rows:
            self._rows_end[piece.lane] = piece.rows[-1].offset + 1
            marks.clear()
        if piece.mark_ms is not None and (not marks or marks[-1][0] < piece.mark_ms):
            marks.append((piece.mark_ms, piece.mark_at))
            if len(marks) > MARKS:
                self._marks[piece.lane] = _thinned(marks)

    def _count(self, lane: int, rows: Iterable[StagedRow]) -> None:
        entries = self._unneeded[lane]
        for row in rows:
            size = len(row.value) + len(row.key or b"")
            if not entries or entries[-1][1] >= ENTRY_BYTES:
                entries.append([0, 0])
            entries[-1][0] = row.offset + 1
            entries[-1][1] += size
            self._read_rows += 1
            self._read_bytes += size
            self._needed_bytes += size

    def _size(self, records: int) -> int:
        """Return about how large records are that have not been read."""
        return records * (self._read_bytes + ROW_BYTES) // (self._read_rows + 1)

    def _missing(self, lane: int, offset: int, begin: int) -> LowtideError:
        """Return why the log begins after an offset; carriers report before they cut, so this is read after that."""
        reported = self._topic.reported().get(lane)
        if reported is None or reported.needed < begin:
            return self._lost(lane, f"begins at offset {begin}, but offset {offset} is needed")
        return Overtaken(
            f"another carrier has taken records of the {self._topic.name} to their store, up to offset "
            f"{reported.needed}, and cut it: this one was at offset {offset}, and begins again",
            where=f"{self._topic.where}, partition {lane}",
            way_out="nothing: each record is in the store once; if it happens again, see what carries this sink",
        )

    def _lost(self, lane: int, what: str) -> StagedLost:
        return StagedLost(
            f"the {self._topic.name}, from which records reach their store, {what}",
            where=f"{self._topic.where}, partition {lane}",
            way_out="the records between are lost to the store: restore the topic, or the store if it was set back; or "
            "run the flow under another name, which writes everything again",
        )


def _as_far(one: Progress, other: Progress) -> bool:
    return one.needed >= other.needed and (one.visible_ms or 0) >= (other.visible_ms or 0)


def _thinned(marks: deque[tuple[int, int]]) -> deque[tuple[int, int]]:
    """Return about half of them, the last one too, as far apart in log time as each other."""
    apart_ms, kept = 2 * (marks[-1][0] - marks[0][0]) // len(marks), deque([marks[0]])
    for mark in marks:
        if mark[0] - kept[-1][0] >= apart_ms:
            kept.append(mark)
    if kept[-1] is not marks[-1]:
        kept.append(marks[-1])
    return kept
