"""A window step: it holds records until nothing before them can come, and gives results when log time has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lowtide.core.operators.batch import Batch
from lowtide.core.operators.clock import ClockKeys, Due, parted_at_the_clock
from lowtide.core.operators.failure import Fault
from lowtide.core.operators.folding import Folding, Refused, window_of
from lowtide.core.operators.group import Key, Touched
from lowtide.core.operators.grouping import NOTHING
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order import FIRST_TICK, position_of, with_child
from lowtide.core.operators.ordered import Holding
from lowtide.core.operators.pending import Pending
from lowtide.core.operators.windows import LATE, Arrival, Saved, open_windows
from lowtide.flow.fields import key_of
from lowtide.flow.moments import micros, micros_of
from lowtide.flow.plan import Plan, Vertex
from lowtide.flow.steps import WindowBy

__all__ = ["LateNode", "LateSeen", "WindowNode"]


class LateSeen:
    """How many records were late.

    Attributes:
        closed: Those that came when a window of theirs had closed.
        ahead: Those whose time lay too far ahead.
    """

    __slots__ = ("ahead", "closed")

    def __init__(self) -> None:
        self.closed = 0
        self.ahead = 0


class Made:
    """What comes out together: order keys, hash units and rows; and of what failed the same."""

    __slots__ = ("ats", "fault_ats", "fault_units", "faults", "rows", "units")

    def __init__(self) -> None:
        self.ats: list[bytes] = []
        self.units: list[int] = []
        self.rows: list[Any] = []
        self.fault_ats: list[bytes] = []
        self.fault_units: list[int] = []
        self.faults: list[Fault] = []

    def give(self, at: bytes, unit: int, row: Any) -> None:
        """Add a result."""
        self.ats.append(at)
        self.units.append(unit)
        self.rows.append(row)

    def fail(self, at: bytes, unit: int, fault: Fault) -> None:
        """Add what failed."""
        self.fault_ats.append(at)
        self.fault_units.append(unit)
        self.faults.append(fault)


class WindowNode(Holding):
    """One window step, of one worker's hash units.

    Args:
        vertex: The step.
        plan: The plan.

    Attributes:
        late_seen: What was late so far.
    """

    def __init__(self, vertex: Vertex, plan: Plan) -> None:
        super().__init__(vertex)
        step = vertex.step
        assert isinstance(step, WindowBy)
        columns = plan.key_of(vertex)
        self._several = len(columns) > 1
        self._key = key_of(columns)
        self._time = None if step.time is None else key_of((step.time,))
        self._slack_us = plan.slack_ms * 1_000
        self._ahead = self._slack_us - 1 + micros(step.ahead)
        self._updates = step.emit == "update"
        self._folding = Folding(vertex)
        self._windows = open_windows(step, self._folding, self._slack_us, self._several)
        self._clock = ClockKeys(plan, vertex)
        self._late: Node | None = None
        self._pending = Pending(f'step "{vertex.name}"')
        self._touched = Touched()
        self._pruned = FIRST_TICK
        self.late_seen = LateSeen()

    def lead_late(self, follower: Node) -> None:
        """Say who takes what is late; without one it is dropped."""
        self._late = follower

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold records."""
        self._pending.add(batch)
        self._touched.add(batch.units, batch.ticks[-1])
        if self.outward:
            feed.held.update(batch.ticks)

    def first_tick(self) -> int | None:
        """The lowest tick of which it holds records; None if it holds none."""
        return self._pending.first_tick

    @property
    def due_tick(self) -> int | None:
        """The smallest tick at which it may send without further input; None if it will not.

        Of sessions that have grown it may be one at which they would have closed: then nothing is sent.
        """
        return None if self._updates else self._windows.first_due

    def advance(self, min_time: int, feed: Feed) -> None:
        """Let records and the clock have their turns, in order, below the level's min time."""
        released = self._pending.release(min_time)
        place = 0
        while True:
            due = self._windows.first_due
            batch = released[place] if place < len(released) else None
            if batch is not None and (due is None or batch.ticks[0] <= due):
                place += 1
                self._tick(batch.ticks[0], batch, feed)
            elif due is not None and due < min_time:
                self._tick(due, None, feed)
            else:
                return

    def _tick(self, tick: int, batch: Batch | None, feed: Feed) -> None:
        """One tick: what upstream clocks gave, then the windows that close, then all other records."""
        early, others = (None, None) if batch is None else parted_at_the_clock(batch, tick)
        if early is not None:
            self._records(early, tick, tick, feed)
        if self._windows.first_due == tick:
            self._close(tick, feed)
        if others is not None:
            self._records(others, tick, tick + 1, feed)

    def _records(self, batch: Batch, tick: int, first: int, feed: Feed) -> None:
        """Put records of one tick into windows, those before tick `first` having closed."""
        made, lates = Made(), list[int]()
        windows, folding, time, key_of_row = self._windows, self._folding, self._time, self._key
        moment = tick * self._slack_us
        latest = moment + self._ahead
        for index, (at, unit, row) in enumerate(zip(batch.ats, batch.units, batch.rows, strict=True)):
            if time is not None:
                moment = micros_of(time(row))
                if moment > latest:
                    self.late_seen.ahead += 1
                    lates.append(index)
                    continue
            position = position_of(at) if folding.watches else None
            try:
                taken, missed = windows.take(Arrival(key_of_row(row), unit, moment, at, row, tick, first, position))
                if self._updates and taken is not LATE:
                    self._update(at, unit, key_of_row(row), taken, made)  # type: ignore[arg-type]
            except Refused as refused:
                made.fail(at, unit, Fault(self.vertex, refused.failure, None))
                continue
            if missed:
                self.late_seen.closed += 1
                lates.append(index)
        self._emit(made, tick, feed)
        if lates and self._late is not None:
            self._late.take(batch.pick(lates), 0, feed)

    def _update(self, at: bytes, unit: int, key: Key, taken: Sequence[tuple[Any, Any]], made: Made) -> None:
        """Give a result for each window that took a record; or none, where one fails."""
        outs = [
            out
            for span, state in taken
            for out in self._folding.finish(window_of(key, self._several, span), self._rows(state), position_of(at))
        ]
        for number, out in enumerate(outs, 1):
            made.give(with_child(at, number), unit, out)

    def _close(self, tick: int, feed: Feed) -> None:
        """Close what is due at a tick; each result has its number in its hash unit, and so has what fails."""
        made = Made()
        unit, number = -1, 0
        for due in self._windows.close(tick):
            if due.unit != unit:
                unit, number = due.unit, 0
                at_of = self._clock.of(tick, unit)
                self._touched.add([unit], tick)
            if self._updates:
                continue
            try:
                outs = self._finished(due)
            except Refused as refused:
                number += 1
                made.fail(at_of(number), unit, Fault(self.vertex, refused.failure, None))
                continue
            for out in outs:
                number += 1
                made.give(at_of(number), unit, out)
        self._emit(made, tick, feed)

    def _finished(self, due: Due) -> list[Any]:
        window = window_of(due.key, self._several, (due.start, due.end))
        return self._folding.finish(window, self._rows(due.state), self._clock.position(due.unit))

    def _rows(self, state: Any) -> Any:
        """What functions get of what a window keeps."""
        return [row for _, row in state] if self._folding.keeps else state

    def _emit(self, made: Made, tick: int, feed: Feed) -> None:
        if made.rows:
            self.pass_on(Batch(made.ats, made.units, made.rows, None, [tick]), feed)
        if made.faults:
            feed.fail(Batch(made.fault_ats, made.fault_units, list[Any](made.faults), None, [tick]))

    # -- state -----------------------------------------------------------------------------------------------------

    def prune(self, tick: int) -> None:
        """Forget how windows were before a tick; O(changes since)."""
        self._pruned = max(self._pruned, tick)
        self._windows.prune(tick)

    def changed(self, since: int) -> list[int]:
        """The hash units that may have changed at a tick or later."""
        return self._touched.since(since)

    def capture(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, Saved]]]:
        """The windows that are open below a tick, by unit and key, of units that may have changed since; O(keys)."""
        assert tick >= self._pruned, "the state below a pruned tick is gone"
        parts: dict[int, list[tuple[Key, Saved]]] = {unit: [] for unit in self.changed(since)}
        for unit, key, saved in self._windows.below(tick, parts):
            parts[unit].append((key, saved))
        return parts

    def look(self, key: Key, tick: int) -> Any:
        """The windows of one key that are open below a tick; `NOTHING` if there are none."""
        return self._windows.of_key(key, tick) or NOTHING

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, Saved]]], tick: int) -> None:
        """Take over what `capture(tick)` gave for these hash units; when they close is known from them."""
        self._pruned = max(self._pruned, tick)
        for unit, keys in parts.items():
            self._touched.add([unit], tick - 1)
            for key, saved in keys:
                self._windows.restore(unit, key, saved)


class LateNode(Node):
    """What is late for a window, as it came, with its own order keys."""

    sound = True

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Pass records on."""
        self.pass_on(batch, feed)
