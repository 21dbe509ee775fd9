"""The labels that have ended: a scan that forgets them after a while, but none while somebody waits for it.

What comes to it is final, as a `when_done` runs in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lowtide.core.fronts.end import end_tick
from lowtide.core.operators.keyed.scan import FlatScanGrouping
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, tick_of
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Ended
from lowtide.flow.time.durations import ticks_of

REMEMBERED_QUESTIONS = 200
"""A label that so many questions have not asked for is not waited for any more."""


class EndedGrouping(FlatScanGrouping):
    """The labels of one worker's hash units.

    A worker that catches up goes through hours of log time in a second. So a label that was asked for before it ended
    is remembered beside the state, however soon this forgets it. And where time ends nothing is forgotten any more, or
    all would be at once.

    Args:
        vertex: The step.
        plan: The plan.
    """

    def __init__(self, vertex: Vertex[Ended], plan: Plan) -> None:
        assert vertex.step.ttl is not None, "labels are kept for a while"
        super().__init__(vertex, plan.key_of(vertex), ticks_of(vertex.step.ttl, plan.slack_ms))
        self._end = end_tick(plan.slack_ms)
        self._reached = FIRST_TICK
        """The newest tick that is known of the log."""
        self._questions = 0
        self._waited: dict[Key, tuple[int, int | None]] = {}
        """By label that is waited for the number of the last question, and the tick of its last end since the first."""

    def insert(self, batch: Batch) -> tuple[Batch | None, Batch | None]:
        """See `Grouping`."""
        self._reached = max(self._reached, batch.ticks[-1] + 1)
        if self._waited:
            for at, row in zip(batch.ats, batch.rows, strict=True):
                label = self._key(row)
                if label in self._waited:
                    self._waited[label] = self._waited[label][0], tick_of(at)
        return super().insert(batch)

    def prune(self, tick: int) -> None:
        """See `Grouping`."""
        if tick < self._end:
            self._reached = max(self._reached, tick)
            super().prune(tick)

    def look(self, key: Key, tick: int) -> object:
        """See `Grouping`."""
        return super().look(key, tick if tick < self._end else self._reached)

    def walk(self, unit: int | None, tick: int) -> Iterator[tuple[Key, Any]]:
        """See `Grouping`."""
        return super().walk(unit, tick if tick < self._end else self._reached)

    def ended(self, labels: Sequence[Key], tick: int) -> dict[Key, int]:
        """By label the tick of its last end below a tick, of those that have ended; they are waited for from now on."""
        self._questions += 1
        found: dict[Key, int] = {}
        for label in labels:
            _, end = self._waited.get(label, (0, None))
            state = self.look(label, tick)
            if state is not NOTHING:
                end = state[1]  # type: ignore[index]
            if end is not None and end < tick:
                found[label] = end
            self._waited[label] = self._questions, end
        self._forget_waited(self._questions - REMEMBERED_QUESTIONS)
        return found

    def _forget_waited(self, before: int) -> None:
        gone: Iterable[Key] = [label for label, (number, _) in self._waited.items() if number <= before]
        for label in gone:
            del self._waited[label]
