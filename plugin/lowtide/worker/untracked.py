"""A worker's core without tracking, to measure what tracking costs: order of arrival, delivered at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.output import Exchange
from lowtide.operators.source import SourceRows
from lowtide.worker.core import WorkerCore
from lowtide.worker.effects import Effects, Frame
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
            assert admitted.ticks is not None
            self._arrived = max(self._arrived, int(admitted.ticks[-1]))
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

    def flush(self) -> Flush | None:
        """Nobody is told anything."""
        return None

    def keep_floors(self) -> Effects:
        """There are none."""
        return Effects()

    def _as_of_now(self, batch: Batch) -> Batch:
        return batch.with_meta(replace(batch.meta, tick=np.full(len(batch), self._arrived, np.int64)))

    def _bury(self, batch: Batch) -> None:
        if self.front is not None:
            self._arrived = max(self._arrived + 1, int(batch.meta.tick[-1]))
            batch = self._as_of_now(batch)
        super()._bury(batch)

    def _send(self, output: Exchange, effects: Effects) -> None:
        for target, part in output.batch.split(self._workers):
            for piece in (part,) if self._limits is None else self._limits.frames(part):
                effects.frames.append(Frame(output.vertex, target, 1, piece.meta.ticks()[-1:], piece))

    def _hold(self, ticks: list[int]) -> None:
        """Nothing is held: `frame` lets everything go on."""
