"""A clock at work: signs that there are records, at level 0, and its strikes after the exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.clocks import Sighted
from lowtide.flow.steps.steps import Clock, Sign
from lowtide.flow.time.moments import micros_of, moment


class SignNode(Node):
    """Makes signs: of each front one for the first record in each span of the clock.

    After a restart it makes one for a span again that had one: that changes nothing where it comes to.

    Args:
        vertex: The step.
        plan: The plan.
    """

    sound = True

    def __init__(self, vertex: Vertex[Sign], plan: Plan) -> None:
        super().__init__(vertex)
        self._striking = vertex.step.striking
        self._slack_us = plan.slack_ms * 1_000
        self._next: dict[bytes, int] = {}
        """By front where the span ends that has had its sign, in microseconds."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Make signs of records of one front, which are in order; O(ticks) where no span begins."""
        front = batch.ats[0][8:12]
        end = self._next.get(front)
        if end is not None and batch.ticks[-1] * self._slack_us < end:
            return
        ats: list[bytes] = []
        signs: list[Any] = []
        for at in batch.ats:
            began = tick_of(at) * self._slack_us
            if end is None or began >= end:
                after = self._striking.every.after(began)
                end = self._next[front] = began if after is None else after
                ats.append(at)
                signs.append(Sighted(self._striking.name, moment(began)))
        if ats:
            self.pass_on(Batch(ats, [], signs), feed)


class ClockNode(TimedScanNode):
    """One clock: a scan with a timer, which stops when all sources have ended.

    Args:
        vertex: The clock.
        plan: The plan.
    """

    def __init__(self, vertex: Vertex[Clock], plan: Plan) -> None:
        super().__init__(vertex, None, plan)
        assert vertex.step.striking is not None, "it was written down with its functions"
        self._striking = vertex.step.striking
        self._is_over = False
        self._last: int | None = None
        """End of the newest span with a record, in microseconds: of all that came, processed or not."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold signs."""
        for sign in batch.rows:
            self._look(self._striking.every.after(micros_of(sign.at)))
        super().take(batch, port, feed)

    def time_ends(self) -> None:
        """Finish, as no record can come any more: stop where the span of the last one ends."""
        self._is_over = True

    @property
    def due_tick(self) -> int | None:
        """The tick at which it strikes next; None if it does not."""
        due = super().due_tick
        if due is None or not self._is_over:
            return due
        return due if self._last is not None and self._dues.head[2] <= self._last else None

    def _look(self, last: int | None) -> None:
        if last is not None and (self._last is None or last > self._last):
            self._last = last

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, Any]]], tick: int) -> None:
        """See `TimedScanNode`."""
        super().restore(parts, tick)
        for group in self._groups.values():
            if group.base.last is not None:
                self._look(micros_of(group.base.last))
