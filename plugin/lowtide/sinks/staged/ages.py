"""Reads the partitions of a staged log by their age, where later records of a key replace earlier ones.

A key that a growth of the job has moved is in a partition that the growth made, and what it had before is in an older
one (`flow/plan/lane_partitions.py`). So the log is read from the oldest partitions first: those of a growth follow once
the store has all that older ones had when the carrier began. The growth came before that, so nothing older of a key
that it has moved is left. After that all are read side by side, as keys move no more in this carrier's life.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lowtide.sinks.staged.contract import Carriage, Progress, Staged, StagedRow


class Ages:
    """The partitions of one log that wait for older ones; does no I/O.

    Args:
        births: By partition the number of the growth that made it; empty if none of them ever waits.
        ends: By partition the offset after its last record when the carrier began.
    """

    def __init__(self, births: Sequence[int], ends: Mapping[int, int]) -> None:
        self._births = births
        self._ends = ends
        self._left = sorted(set(births))[1:]
        """The growths whose partitions wait, ascending."""
        self._after: dict[int, int] = {}
        """By partition the offset after the last row before its end that was taken."""

    @property
    def waiting(self) -> frozenset[int]:
        """The partitions that are not read yet."""
        return frozenset(each for each, birth in enumerate(self._births) if self._left and birth >= self._left[0])

    def take(self, lane: int, rows: Sequence[StagedRow]) -> None:
        """Note rows of a partition that the carrier was given."""
        if self._left and (offsets := [row.offset for row in rows if row.offset < self._ends[lane]]):
            self._after[lane] = offsets[-1] + 1

    def go_on(self, has_read: Callable[[Mapping[int, int]], bool], progress: Mapping[int, Progress]) -> bool:
        """Return whether younger partitions follow now, as older ones are in the store; call it after each turn.

        Args:
            has_read: Whether everything before these offsets was taken.
            progress: Progress of the carrier.
        """
        if not self._left:
            return False
        waiting = self.waiting
        older = {lane: end for lane, end in self._ends.items() if lane not in waiting}
        if not has_read(older) or any(progress[lane].needed < self._after.get(lane, 0) for lane in older):
            return False
        del self._left[0]
        return True


def births_by_key(sink: Staged, carriage: Carriage) -> Sequence[int]:
    """Return by partition the growth that made it, where later records of a key replace earlier ones; else nothing."""
    return [carriage.births_of(each) for each in range(carriage.lanes)] if sink.by_key else ()
