"""The faults of one worker that end the life, unless something takes them back: until then no sink passes them (R6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from lowtide.core.operators.faults.failure import error_of
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of
from lowtide_tracker import LocalTracker

__all__ = ["Ending"]


class Ending:
    """Holds a tick of the outlets behind it (`Segments.outlets`) open for each of them.

    Once the function is corrected, the next life reads the record again: what it gives then must not lie below what a
    lane has delivered, as it would be taken for delivered.

    Args:
        place: Whose they are, for errors.
        tracker: The local tracker of the worker's process.
        outlets: By step the segments that the sinks behind it listen to.
    """

    def __init__(self, place: str, tracker: LocalTracker, outlets: Mapping[int, Sequence[int]]) -> None:
        self._pending = Pending(f"the faults of {place}")
        self._tracker = tracker
        self._outlets = outlets
        self._holds: dict[bytes, int] = {}
        """By order key the value that is folded."""

    @property
    def first_tick(self) -> int | None:
        """The lowest tick that one waits for; None if there is none."""
        return self._pending.first_tick

    def add(self, batch: Batch) -> None:
        """Take faults and tombstones of faults, in the turn in which what caused them is acked, before its ack (R5).

        Raises:
            TimeWentBack: one is below what min time has passed.
        """
        for at, fault, taken_back in zip(batch.ats, batch.rows, batch.flags or repeat(False), strict=False):
            value = self._holds.pop(at, 0) if taken_back else self._tracker.new_value()
            if not taken_back:
                self._holds[at] = value
            if value:
                for outlet in self._outlets[fault.vertex.id]:
                    self._tracker.fold(outlet, (tick_of(at),), value)
        self._pending.add(batch)

    def act(self, min_time: int) -> None:
        """End the life if a fault lies below min time, the first of the lowest tick: nothing can take it back any more.

        Args:
            min_time: That of the segments that the step waits for: an outlet's waits for the fault itself.

        Raises:
            FrameTooLarge: a record is too large.
            MessageRefused: a message cannot be parsed.
            UnmatchedTombstone: a fault was taken back that never was.
            UserError: a user's function failed.
        """
        for batch in self._pending.release(min_time):
            raise error_of(batch.ats[0], batch.rows[0])
