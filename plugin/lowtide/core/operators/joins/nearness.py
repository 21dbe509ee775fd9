"""Nearness: the times of a join's records, which of them pair, which come too late, and when each is over."""

from __future__ import annotations

from typing import Any

from lowtide.core.operators.order.late_seen import Why
from lowtide.flow.schema.fields import key_of
from lowtide.flow.steps.steps import Join
from lowtide.flow.time.moments import instant_over, micros, micros_of


class Nearness:
    """The times of a join, in microseconds and ticks; port 0 is the left stream, port 1 the right one.

    Args:
        step: The join.
        slack_ms: How long a tick is.
        looks_ahead: Whether a record can be ahead of its log time.

    Attributes:
        slack_us: The length of a tick.
    """

    def __init__(self, step: Join, slack_ms: int, *, looks_ahead: bool = True) -> None:
        self.slack_us = slack_ms * 1_000
        self._times = None if step.time is None else [key_of((column,)) for column in step.time]
        self._waits = [micros(wait) for wait in step.wait]
        self._ahead = self.slack_us - 1 + micros(step.ahead) if looks_ahead else None
        before, after = micros(step.before), micros(step.after)
        self._reach = (after, before)
        """By port how far after its own time a record's last partner may be."""

    def moment(self, port: int, tick: int, row: Any) -> int:
        """Return the time of a record."""
        return tick * self.slack_us if self._times is None else micros_of(self._times[port](row))

    def lateness(self, port: int, moment: int, tick: int, first: int) -> Why | None:
        """Return why a record of a tick is not in time; None if it is. What is due before tick `first` is over."""
        if self._times is None:
            return None
        if self._ahead is not None and moment > tick * self.slack_us + self._ahead:
            return "ahead"
        return "closed" if instant_over(moment, self._waits[port], self.slack_us) < first else None

    def meet(self, left: int, right: int) -> bool:
        """Return whether two records are near enough."""
        return -self._reach[1] <= right - left <= self._reach[0]

    def ends(self, port: int, moment: int, tick: int) -> tuple[int, int]:
        """Return when the last partner of a tick's record has come: the tick at which that is known, and the moment."""
        last, wait = moment + self._reach[port], self._waits[1 - port]
        return max(instant_over(last, wait, self.slack_us), tick + 1), last + wait
