"""What workers tell the tracker: six of them, two keyed levels, flush after flush."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lowtide_tracker import Graph, LocalTracker, Tracker

GRAPH: Mapping[int, tuple[int, ...]] = {1: (), 2: (1,)}
"""Two keyed levels."""
FRONTS = (0, 1)
WORKERS = 6
"""Two of each level: 0 and 1 have the fronts, 2 and 3 are of level 1, 4 and 5 of level 2."""
FLUSH_ENTRIES = 20
FLUSHES = 8
"""Of one round."""
MOVING = (3, 5, 7)
"""Which flushes of a round move a min time."""
CAPACITY_TICKS = 1 << 16
INCARNATION = 1


class Traffic:
    """The life of six workers in rounds, each of which covers `FLUSH_ENTRIES` new ticks.

    A front sends each worker of level 1 a frame with all ticks of the round; that worker takes the frames of both
    fronts in two halves and sends each half on to level 2. So every flush has `FLUSH_ENTRIES` entries, one in four a
    heartbeat as well; every value is folded twice, and after a round min time stands at its end everywhere.

    Attributes:
        workers: Their local trackers, by number.
        folds: How many times a value has been folded at a tick.
    """

    def __init__(self) -> None:
        self.workers = [LocalTracker(number, INCARNATION, start=0) for number in range(WORKERS)]
        self.folds = 0
        self._next_tick = 0

    def round(self) -> Iterator[LocalTracker]:
        """Give the workers of one round one by one as they have to flush, `FLUSHES` times; go on once one has."""
        start, middle_tick = self._next_tick, self._next_tick + FLUSH_ENTRIES // 2
        self._next_tick = end = start + FLUSH_ENTRIES
        fronts, middle, last = self.workers[:2], self.workers[2:4], self.workers[4:]
        values = {(front.worker, worker.worker): front.new_value() for front in fronts for worker in middle}
        for front in fronts:
            for worker in middle:
                self._fold(front, 1, range(start, end), values[front.worker, worker.worker])
            front.heartbeat(front.worker, end)
            yield front
        sent: list[tuple[LocalTracker, range, int]] = []
        for half in (range(start, middle_tick), range(middle_tick, end)):
            for worker in middle:
                for target in last:
                    sent.append((target, half, worker.new_value()))
                    self._fold(worker, 2, half, sent[-1][2])
                for front in fronts:
                    self._fold(worker, 1, half, values[front.worker, worker.worker])
                yield worker
        for target, half, value in sent:
            self._fold(target, 2, half, value)
        yield from last

    @property
    def min_time(self) -> int:
        """Where global min time stands once the tracker has the last round."""
        return self._next_tick

    def _fold(self, worker: LocalTracker, segment: int, ticks: range, value: int) -> None:
        self.folds += len(ticks)
        worker.fold(segment, ticks, value)


def tracker() -> Tracker:
    """Return the tracker that these workers speak to."""
    return Tracker(Graph(GRAPH), dict.fromkeys(FRONTS, 0), start=0, capacity_ticks=CAPACITY_TICKS)
