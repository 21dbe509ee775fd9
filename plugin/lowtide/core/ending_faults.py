"""The faults of one worker that end the life unless they are taken back; until then no sink passes them (R6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from lowtide.core.operators.faults.failure import error_of
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of
from lowtide_tracker import LocalTracker


class Ending:
    """Holds a tick of the following outlets (`Segments.outlets`) open for each fault.

    Once the function is corrected, the next life reads the record again: its results must not lie below what a lane has
    delivered, as they would count as delivered.

    Args:
        owner: Their owner, for errors.
        tracker: The local tracker of the worker's process.
        outlets: By step, the segments that the sinks after it listen to.
    """

    def __init__(self, owner: str, tracker: LocalTracker, outlets: Mapping[int, Sequence[int]]) -> None:
        self._pending = Pending(f"the faults of {owner}")
        self._tracker = tracker
        self._outlets = outlets
        self._holds: dict[bytes, int] = {}
        """The folded value by order key."""

    @property
    def first_tick(self) -> int | None:
        """Return the lowest tick that one waits for; None if there is none."""
        return self._pending.first_tick

    def add(self, batch: Batch) -> None:
        """Take faults and tombstones of faults, in the same turn as the ack of their cause, before that ack (R5).

        Raises:
            TimeWentBack: a fault is below what min time has passed.
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
        """End the life if a fault lies below min time, with the first of the lowest tick: nothing can take it back.

        Args:
            min_time: That of the segments that the step waits for; an outlet's waits for the fault itself.

        Raises:
            FrameTooLarge: a record is too large.
            MessageRefused: a message cannot be parsed.
            UnmatchedTombstone: a fault was taken back that did not exist.
            UserError: a user's function failed.
        """
        for batch in self._pending.release(min_time):
            raise error_of(batch.ats[0], batch.rows[0])
