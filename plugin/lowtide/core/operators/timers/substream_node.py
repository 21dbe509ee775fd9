"""Substreams at work: a scan with a timer whose function sees log time, and the records that open one on the side."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from lowtide.core.operators.faults.failure import Fault
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of
from lowtide.core.operators.state.group import Group
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.flow.time.moments import moment


class SubstreamNode(TimedScanNode):
    """One `substream`, of one worker's hash units; see `TimedScanNode`."""

    _opened: list[tuple[bytes, int, Any]] | None = None
    """Place, hash unit and record of what has opened a substream since the last call."""

    @override
    def advance(self, min_time: int, feed: Feed) -> None:
        """See `TimedScanNode`; then give what has opened a substream."""
        super().advance(min_time, feed)
        opened, self._opened = self._opened, None
        if opened and 0 in self._lates:
            ats, units, rows = (list(each) for each in zip(*opened, strict=True))
            self._lates[0].take(Batch(ats, units, rows), 0, feed)

    @override
    def _seen(self, at: bytes) -> tuple[Any, ...]:
        return (moment(tick_of(at) * self._slack_ms * 1_000),)

    @override
    def _called(self, group: Group, at: bytes, state: Any, row: Any) -> tuple[Any, Any]:
        after, out = super()._called(group, at, state, row)
        if state is None and type(out) is not Fault and (after is not None or out):
            self._opened = self._opened or []
            self._opened.append((at, group.unit, row))
        return after, out
