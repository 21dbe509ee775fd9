"""A relay's sums: the flushes of the workers of one machine become one message to the tracker.

It is no worker: it has no number in the life, keeps only what is under way, and reports nothing. Workers keep their
flushes until the tracker has applied them, as without it; so a relay that dies takes nothing with it (R10).

    >>> from lowtide_tracker import Flush
    >>> relay = Relay()
    >>> relay.attach(1, applied=0)
    >>> relay.attach(2, applied=7)
    >>> relay.take(Flush.of(1, 1, [(1, 5, 0b01), (2, 5, 0b11)], [(4, 6)]))
    >>> relay.take(Flush.of(2, 8, [(1, 5, 0b01)]))
    >>> relay.take(Flush.of(1, 2, [], [(4, 9)]))
    >>> relay.sum()
    Sum(parts=((1, 1, 2), (2, 8, 8)), acks=((2, 5, 3),), heartbeats=((4, 9),), floors=(), dues=())
    >>> relay.summed(1)
    [1, 2]
    >>> relay.applied(1), relay.applied(2)
    (2, 8)
"""

from collections import deque
from operator import itemgetter

from lowtide_tracker.errors import FlushGap, HeartbeatWentBack, ProtocolError
from lowtide_tracker.fields import Ack
from lowtide_tracker.floors import Floor
from lowtide_tracker.messages import Absolute, Flush, Sum

_TICK = itemgetter(1)


class Relay:
    """Sums whole flushes of several workers, each worker's in their order (R5).

    Its laws:

    * A sum has of each worker a run of whole flushes, which continues the run of the sum before: a tracker that has
      applied it whole stands where it would stand after those flushes.
    * A worker's flush counts as applied once the sum that has it was.
    """

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}
        """Per worker: its last flush that is in some sum."""
        self._applied: dict[int, int] = {}
        """Per worker: its last flush that the tracker has applied."""
        self._first: dict[int, int] = {}
        """Per worker: its first flush in the sum that gathers."""
        self._sums: dict[int, dict[int, int]] = {}
        """Per segment: tick -> XOR; no zeros."""
        self._heartbeats: dict[int, int] = {}
        self._floors: dict[tuple[int, int, bool], Floor] = {}
        self._dues: dict[tuple[int, int], int | None] = {}
        self._sent: deque[tuple[tuple[int, int, int], ...]] = deque()
        """The parts of the sums that the tracker has not applied yet, oldest first."""
        self._summed = 0
        """The number of sums that it has applied."""

    def attach(self, worker: int, *, applied: int) -> None:
        """Begin with a worker, also again: the tracker has applied its flushes up to this one.

        What it said before has to be in a sum that was made: see `sum`.
        """
        assert worker not in self._first, f"flushes of worker {worker} are in no sum yet"
        self._taken[worker] = self._applied[worker] = applied

    def take(self, flush: Flush) -> None:
        """Add a flush to the sum; one that comes again is ignored.

        Raises:
            FlushGap: a flush of this worker is missing.
            HeartbeatWentBack: a front took back what it had said.
            ProtocolError: the worker has not come.
        """
        worker, number = flush.worker, flush.number
        taken = self._taken.get(worker)
        if taken is None:
            raise ProtocolError(f"worker {worker} sent a flush before it was welcomed")
        expected = taken + 1
        if number != expected:
            if number < expected:
                return
            raise FlushGap(worker, number, expected)
        for front, tick in flush.heartbeats:
            before = self._heartbeats.get(front, tick)
            if tick < before:
                raise HeartbeatWentBack(front, tick, before)
        self._taken[worker] = number
        self._first.setdefault(worker, number)
        for segment, tick, value in flush.acks:
            sums = self._sums.setdefault(segment, {})
            total = sums.get(tick, 0) ^ value
            if total:
                sums[tick] = total
            else:
                del sums[tick]
        self._heartbeats.update(flush.heartbeats)
        for floor in flush.floors:
            self._floors[floor.front, floor.offset, floor.cap] = floor
        for segment, owner, due in flush.dues:
            self._dues[segment, owner] = due

    def report(self, report: Absolute) -> None:
        """Note a worker's report, which goes on to the tracker as it is: its flushes continue from there.

        Those up to there need not be kept: the tracker that asks for it takes it, or asks for another one.
        """
        self._taken[report.worker] = self._applied[report.worker] = report.number

    def sum(self) -> Sum | None:
        """Return the sum of all that was taken since the one before; None if that is nothing.

        Whatever else goes to the tracker of what a worker asks has to come after it.
        """
        if not self._first:
            return None
        parts = tuple((worker, first, self._taken[worker]) for worker, first in self._first.items())
        acks: list[Ack] = [
            (segment, tick, value) for segment, sums in self._sums.items() for tick, value in sums.items()
        ]
        acks.sort(key=_TICK, reverse=True)
        beats, floors = tuple(self._heartbeats.items()), tuple(self._floors.values())
        dues = tuple((segment, owner, tick) for (segment, owner), tick in self._dues.items())
        for each in (self._first, self._sums, self._heartbeats, self._floors, self._dues):
            each.clear()
        self._sent.append(parts)
        return Sum(parts, tuple(acks), beats, floors, dues)

    def summed(self, number: int) -> list[int]:
        """Note that the tracker has applied so many sums; return the workers whose flushes these had.

        Raises:
            ProtocolError: there were not so many.
        """
        workers: dict[int, None] = {}
        while self._summed < number:
            if not self._sent:
                raise ProtocolError(f"the tracker applied {number} sums of a relay that made {self._summed}")
            self._summed += 1
            for worker, _, last in self._sent.popleft():
                self._applied[worker] = max(last, self._applied[worker])
                workers[worker] = None
        return list(workers)

    def applied(self, worker: int) -> int:
        """Return the last flush of a worker that the tracker has applied; 0 of one that never came."""
        return self._applied.get(worker, 0)
