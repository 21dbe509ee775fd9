"""A window step: it holds records until nothing before them can come, and gives results when log time has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

from lowtide.core.operators.faults.failure import Fault
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.clock import ClockKeys, Due, parted_at_the_clock
from lowtide.core.operators.order.late_seen import LateSeen
from lowtide.core.operators.order.memory import Kept
from lowtide.core.operators.order.order import FIRST_TICK, Position, position_of, with_child
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.state.group import Key, Touched
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.state.packing import Packing, RecordPacking, WindowPacking
from lowtide.core.operators.state.shelf import Shelves
from lowtide.core.operators.windows.cold_records import ColdRecords
from lowtide.core.operators.windows.cold_sessions import ColdSessions
from lowtide.core.operators.windows.cold_windows import ColdWindows
from lowtide.core.operators.windows.folding import Folding, Refused, window_of
from lowtide.core.operators.windows.windows import LATE, Arrival, OpenWindows, Saved, merged, open_windows, rows_of
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import key_of
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.time.moments import micros, micros_of

Cold = ColdWindows | ColdRecords | ColdSessions
"""Windows of which not all are in memory."""

LATE_NUMBER = 1
"""The number in the child path of what is late for a window that gives results with each record; theirs follow."""


class Made:
    """The results that come out together: order keys, hash units and rows; and the same for faults."""

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

    def pass_on(self, node: Node, feed: Feed, ticks: list[int] | None = None) -> None:
        """Hand on all results and faults; `ticks` are theirs, in order, where that is known."""
        if self.rows:
            node.pass_on(Batch(self.ats, self.units, self.rows, None, ticks), feed)
        if self.faults:
            feed.fail(Batch(self.fault_ats, self.fault_units, list[Any](self.faults), None, ticks))


class _Closing:
    """A tick at which windows are closing.

    Attributes:
        tick: The tick.
        dues: Those that are still to close.
        others: The records of this tick that come after them.
        unit: The hash unit of the last one that closed.
        number: How much has come of this unit's, failures among it.
        at_of: What gives the order key of such a number.
        position: Where that unit's results stand, for errors.
    """

    __slots__ = ("at_of", "dues", "number", "others", "position", "tick", "unit")

    at_of: Callable[[int], bytes]
    position: Position

    def __init__(self, tick: int, dues: Iterator[Due], others: Batch | None) -> None:
        self.tick = tick
        self.dues = dues
        self.others = others
        self.unit, self.number = -1, 0


class WindowNode(Holding):
    """One window step, of one worker's hash units.

    Args:
        vertex: The step.
        plan: The plan.
    """

    def __init__(self, vertex: Vertex[WindowBy], plan: Plan) -> None:
        super().__init__(vertex)
        step = vertex.step
        columns = plan.key_of(vertex)
        self._several = len(columns) > 1
        self._key = key_of(columns) if columns else None
        """Returns a record's key; None where it is its hash unit."""
        self._time = None if step.time is None else key_of((step.time,))
        self._slack_us = plan.slack_ms * 1_000
        self._ahead = self._slack_us - 1 + micros(step.ahead)
        self._updates = step.emit == "update"
        self._folding = Folding(vertex)
        self._windows: OpenWindows = open_windows(step, self._folding, self._slack_us, self._several)
        self._cold: Cold | None = None
        """Where not all windows are in memory: `_windows`."""
        self._clock = ClockKeys(plan, vertex)
        self._pending = Pending(f'step "{vertex.name}"')
        self._touched = Touched()
        self._pruned = FIRST_TICK
        self._closing: _Closing | None = None
        """The tick that has been begun, and not ended."""
        self._late_seen = LateSeen()
        self.late_seen = {vertex.name: self._late_seen}
        self.states = {vertex.name: self}

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold records."""
        self._pending.add(batch)
        self._touched.add(batch.units, batch.ticks[-1])
        self.hold(batch.ticks, feed)

    def first_tick(self) -> int | None:
        """The lowest tick of which it holds records; None if it holds none."""
        closing = self._closing
        return self._pending.first_tick if closing is None or closing.others is None else closing.tick

    @property
    def due_tick(self) -> int | None:
        """The smallest tick at which it may send without further input; None if it will not.

        Of sessions that have grown it may be one at which they would have closed: then nothing is sent.
        """
        return None if self._updates else self._windows.first_due

    @property
    def kept(self) -> Kept:
        """Return the number of open windows and their approximate memory."""
        return self._windows.kept

    def advance(self, min_time: int, feed: Feed) -> None:
        """Let records and the clock have their turns, in order, below the level's min time."""
        self.go_on(min_time, feed, Portion())

    def go_on(self, min_time: int, feed: Feed, portion: Portion) -> int:
        """Continue as in `Holding`: stop after a tick, or between two windows that close."""
        pending, windows = self._pending, self._windows
        if self._cold is not None:
            self._cold.come_near(min_time)
        if self._closing is not None and not self._close(self._closing, feed, portion):
            return self._closing.tick
        while True:
            first, due = pending.first_tick, windows.first_due
            tick = first if due is None or (first is not None and first < due) else due
            if tick is None or tick >= min_time:
                pending.release(min_time)
                return min_time
            if portion.spent:
                return tick
            batch = next(iter(pending.release(tick + 1)), None)
            if not self._tick(tick, batch, feed, portion):
                return tick

    def _tick(self, tick: int, batch: Batch | None, feed: Feed, portion: Portion) -> bool:
        """One tick: what upstream clocks gave, then the windows that close, then all others; whether all is done."""
        early, others = None, None
        if batch is not None:
            portion.spend(len(batch.ats))
            early, others = parted_at_the_clock(batch, tick)
        if early is not None:
            self._records(early, tick, tick, feed)
        if self._windows.first_due == tick:
            self._closing = _Closing(tick, self._windows.close(tick), others)
            return self._close(self._closing, feed, portion)
        if others is not None:
            self._records(others, tick, tick + 1, feed)
        return True

    def _records(self, batch: Batch, tick: int, first: int, feed: Feed) -> None:
        """Put records of one tick into windows, those before tick `first` having closed."""
        made, lates = Made(), list[int]()
        windows, folding, time = self._windows, self._folding, self._time
        keys = batch.units if self._key is None else map(self._key, batch.rows)
        began = moment = tick * self._slack_us
        latest = moment + self._ahead
        if self._cold is not None:
            self._admit(self._cold, batch, began)
        late_seen = self._late_seen
        late_seen.records += len(batch.ats)
        for index, (at, unit, row, key) in enumerate(zip(batch.ats, batch.units, batch.rows, keys, strict=True)):
            if time is not None:
                moment = micros_of(time(row))
                if moment > latest:
                    late_seen.add("ahead", at, began, moment)
                    lates.append(index)
                    continue
            position = position_of(at) if folding.watches else None
            try:
                taken, missed = windows.take(Arrival(key, unit, moment, at, row, tick, first, position))
                if self._updates and taken is not LATE:
                    self._update(at, unit, key, taken, made)  # type: ignore[arg-type]
            except Refused as refused:
                made.fail(at, unit, Fault(self.vertex, refused.failure, None))
                continue
            if missed:
                late_seen.add("closed", at, began, moment)
                lates.append(index)
        made.pass_on(self, feed, [tick])
        if lates and 0 in self._lates:
            late = batch.pick(lates)
            if self._updates:  # One that is late for some of its windows gives results, too.
                late = late.with_ats([with_child(at, LATE_NUMBER) for at in late.ats])
            self._lates[0].take(late, 0, feed)

    def _admit(self, cold: Cold, batch: Batch, began: int) -> None:
        """Bring the windows of records into memory."""
        assert self._key is not None, "windows by hash unit are in memory"
        time = self._time
        moments = repeat(began, len(batch)) if time is None else (micros_of(time(row)) for row in batch.rows)
        cold.admit(map(self._key, batch.rows), batch.units, moments)

    def _update(self, at: bytes, unit: int, key: Key, taken: Sequence[tuple[Any, Any]], made: Made) -> None:
        """Give a result for each window that took a record; or none, where one fails."""
        outs = [
            out
            for span, state in taken
            for out in self._folding.finish(window_of(key, self._several, span), self._rows(state), position_of(at))
        ]
        for number, out in enumerate(outs, LATE_NUMBER + 1):
            made.give(with_child(at, number), unit, out)

    def _close(self, closing: _Closing, feed: Feed, portion: Portion) -> bool:
        """Close what is due at a tick, then take its other records; whether all is done."""
        made, tick = Made(), closing.tick
        closed = 0
        for due in islice(closing.dues, portion.left):
            closed += 1
            if due.unit != closing.unit:
                closing.unit, closing.number = due.unit, 0
                closing.at_of, closing.position = self._clock.of(tick, due.unit), self._clock.position(due.unit)
                self._touched.add([due.unit], tick)
            if not self._updates:
                self._give(due, closing, made)
        portion.spend(closed)
        made.pass_on(self, feed, [tick])
        if portion.spent:
            return False
        self._closing = None
        if closing.others is not None:
            self._records(closing.others, tick, tick + 1, feed)
        return True

    def _give(self, due: Due, closing: _Closing, made: Made) -> None:
        """Return the results of a window that closes: each, and each fault, has its number in its hash unit."""
        window = window_of(due.key, self._several, (due.start, due.end))
        try:
            outs = self._folding.finish(window, self._rows(due.state), closing.position)
        except Refused as refused:
            closing.number += 1
            made.fail(closing.at_of(closing.number), due.unit, Fault(self.vertex, refused.failure, None))
            return
        for out in outs:
            closing.number += 1
            made.give(closing.at_of(closing.number), due.unit, out)

    def _rows(self, state: Any) -> Any:
        """Return what functions get of what a window keeps."""
        return rows_of(state) if self._folding.keeps else state

    # -- state -----------------------------------------------------------------------------------------------------

    def shelve(self, shelves: Shelves, packing: Packing) -> None:
        """Have windows at rest leave memory; before there are any."""
        step = self.vertex.step
        assert isinstance(step, WindowBy), "nothing else has windows"
        given = step, self._folding, self._slack_us, self._several, shelves
        cold: Cold
        if isinstance(packing, RecordPacking):
            cold = ColdRecords(*given, packing)
        elif isinstance(packing, WindowPacking):
            cold = ColdWindows(*given, packing)
        else:
            cold = ColdSessions(*given, packing)
        self._windows = self._cold = cold

    def prune(self, tick: int) -> None:
        """Forget how windows were before a tick; O(changes since)."""
        self._pruned = max(self._pruned, tick)
        self._windows.prune(tick)

    def changed(self, since: int) -> list[int]:
        """The hash units that may have changed at a tick or later."""
        return self._touched.since(since)

    def capture(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, Saved]]]:
        """The windows that are open below a tick, by unit and key, of units that may have changed since; O(keys)."""
        parts = self.capture_here(tick, since)
        if self._cold is not None:
            for unit, part in parts.items():
                part[:] = self.whole(unit, part, tick)
        return parts

    def capture_here(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, Saved]]]:
        """Return what `capture` does, without the windows that are not in memory."""
        assert tick >= self._pruned, "the state below a pruned tick is gone"
        parts: dict[int, list[tuple[Key, Saved]]] = {unit: [] for unit in self.changed(since)}
        self._windows.below(tick, parts)
        return parts

    def away(self, unit: int, _tick: int) -> list[tuple[Key, Saved]]:
        """Return the windows of a hash unit's keys that are not in memory: the rest of `capture`."""
        return [] if self._cold is None else self._cold.away(unit)

    def whole(self, unit: int, part: list[tuple[Key, Saved]], tick: int) -> list[tuple[Key, Saved]]:
        """Return what `capture` has of a hash unit, from what `capture_here` has: of a window part may be away."""
        return merged([*part, *self.away(unit, tick)])

    def has_away(self, unit: int) -> bool:
        """Return whether windows of a hash unit may not be in memory."""
        return self._cold is not None and self._cold.has_away(unit)

    def walk(self, unit: int | None, tick: int) -> Iterator[tuple[Key, Saved]]:
        """Go through the keys with windows below a tick, of one hash unit or of all; nothing may change meanwhile."""
        for each, part in self.capture_here(tick).items():
            if unit in (None, each):
                yield from self.whole(each, part, tick)

    def look(self, key: Key, tick: int) -> Any:
        """The windows of one key that are open below a tick; `NOTHING` if there are none."""
        return self._windows.of_key(key, tick) or NOTHING

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, Saved]]], tick: int) -> None:
        """Take over what `capture(tick)` gave for these hash units; when they close is known from them."""
        self.prune(tick)
        if self._cold is not None:
            self._cold.come_near(tick)
        for unit, keys in parts.items():
            self._touched.add([unit], tick - 1)
            if self._cold is not None:
                self._cold.restore_unit(unit, keys)
                continue
            for key, saved in keys:
                self._windows.restore(unit, key, saved)


class LateNode(Node):
    """The late records of a window, unchanged, with their own order keys."""

    sound = True

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Pass records on."""
        self.pass_on(batch, feed)
