"""A worker's core without tracking, to measure what tracking costs: order of arrival, delivered at once."""

from __future__ import annotations

from lowtide.core.effects import Effects, Frame
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.batch import Batch
from lowtide.core.operators.node import Parcel
from lowtide.core.operators.order import tick_bytes
from lowtide.core.worker import WorkerCore
from lowtide_tracker import Flush

__all__ = ["UntrackedCore"]

UNBOUNDED = 1 << 62
"""A tick beyond all others."""


class UntrackedCore(WorkerCore):
    """Runs the same steps; every frame is given a tick of its own as it comes, so nothing is ever late or repaired."""

    _arrived = 0

    def rows(self, rows: SourceRows, now_ms: int) -> Effects:
        """Take messages of the front; all of them pass."""
        assert self.front is not None
        self.front.take(rows, now_ms)
        effects = Effects()
        for admitted in self.front.admitted(UNBOUNDED):
            for source in self._sources:
                self._route(self.program.feed_source(source, admitted), effects)
            self._arrived = max(self._arrived, admitted.ticks[-1])
        self.front.prune(UNBOUNDED)
        self._release((), effects)
        return effects

    def frame(self, *frames: Frame) -> Effects:
        """Take frames, in the order they come."""
        effects = Effects()
        batch = Batch.concat([frame.batch for frame in frames])
        self._arrived = max(self._arrived + 1, *(frame.ticks[-1] for frame in frames))
        self._route(self.program.feed(frames[0].vertex, self._as_of_now(batch)), effects)
        self._route(self.program.advance(self._arrived + 1), effects)
        self._release((), effects)
        self.program.prune(self._arrived)
        return effects

    @property
    def min_time(self) -> int:
        """Behind everything that has come."""
        return self._arrived + 1

    @property
    def cleared(self) -> int:
        """The same: what fails ends the life where it stands, and other workers do not know of it."""
        return self.min_time

    def flush(self) -> Flush | None:
        """Nobody is told anything."""
        return None

    def keep_floors(self) -> Effects:
        """There are none."""
        return Effects()

    def _as_of_now(self, batch: Batch) -> Batch:
        now = tick_bytes(self._arrived)
        ats = [now + at[8:] for at in batch.ats]
        return Batch(ats, batch.units, batch.rows, batch.flags, [self._arrived])

    def _bury(self, batch: Batch) -> None:
        if self.front is not None:
            self._arrived = max(self._arrived + 1, batch.ticks[-1])
            batch = self._as_of_now(batch)
        super()._bury(batch)

    def _send(self, parcels: list[Parcel], effects: Effects) -> None:
        for parcel in parcels:
            ticks = parcel.batch.ticks[-1:]
            effects.frames.append(Frame(parcel.vertex, parcel.target, 1, ticks, parcel.batch, parcel.payload))

    def _hold(self, ticks: list[int]) -> None:
        """Nothing is held: `frame` lets everything go on."""
