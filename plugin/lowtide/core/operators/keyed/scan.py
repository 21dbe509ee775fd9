"""Scans, per key and in order: `function(state, record) -> (state, output)`, or `-> (state, outputs)`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from lowtide.core.operators.faults.failure import Failure, Fault, raised
from lowtide.core.operators.faults.watch import record_watch, shown_function
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of, with_child
from lowtide.core.operators.plain.per_record import said_type
from lowtide.core.operators.state.group import Group
from lowtide.core.operators.state.grouping import Appended, Change, Grouping, Mended, apply_changes
from lowtide.core.operators.state.keyed_state import ValueState
from lowtide.core.operators.state.states import States, classes_of
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.site import Function
from lowtide.flow.steps.steps import Broadcast, Scan

__all__ = ["FlatScanGrouping", "Listing", "ScanGrouping", "Scanner", "calling", "classes_of", "laid_out"]


class ScanGrouping(ValueState, Grouping):
    """Keeps the states since the prune time, so that a late record replays from the right one.

    An element is (order key, record, state after it, output); an output may be a `Fault`, and then the state is the
    one before it. A state that is too old when a record comes is the initial one: looked at then, and nowhere else.
    """

    VALUE = 2

    def __init__(self, vertex: Vertex[Scan], columns: Sequence[str], ttl: int | None = None) -> None:
        super().__init__(vertex, columns, ttl)
        self._scan = Scanner(vertex)
        self._initial = vertex.step.initial

    def _append(self, batch: Batch, appended: Appended) -> None:
        groups, initial, scan, key_of, ttl = self._groups, self._initial, self._scan, self._key, self._ttl
        function, gives, fixed, saves = scan.function, scan.gives, scan.fixed, scan.states.saves
        touched, outs, changes = appended.touched, appended.outs, appended.changes
        units, flags = batch.units, batch.flags
        # This loop is the cost of a scan, so it looks everything up once. Where records and states are immutable, it
        # calls only the user's function and one check of the state.
        for index, (at, row) in enumerate(zip(batch.ats, batch.rows, strict=True)):
            key = key_of(row)
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(key, units[index], initial)
            touched.append(group)
            elements = group.elements
            if elements:
                newest, _, state, _ = elements[-1]
            else:
                newest, state = b"", group.base
            if at <= newest or (changes and key in changes):
                appended.left.append(index)
                changes.setdefault(key, []).append(Change(at, row, flags is not None and flags[index]))
                continue
            if ttl is not None and tick_of(at) - (tick_of(newest) if newest else group.touched) >= ttl:
                state = initial
            if fixed:
                try:
                    after, out = function(state, row)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
                    after, out = state, scan.failed(row, error)
                else:
                    if type(out) is not gives or not saves(after):
                        after, out = scan.judged(state, row, after, out, None)
            else:
                after, out = scan(at, state, row)
            elements.append((at, row, after, out))
            outs.append(out)

    def _mend(self, group: Group, changes: list[Change], mended: Mended) -> None:
        elements, scan, unit = group.elements, self._scan, group.unit
        start = bisect_left(elements, (changes[0].at,))
        old = elements[start:]
        rows = apply_changes(self._place, ((at, row) for at, row, _, _ in old), changes)
        mended.taken += [(at, unit, out) for at, _, _, out in old]
        state, ttl = elements[start - 1][2] if start else group.base, self._ttl
        touched = tick_of(elements[start - 1][0]) if start else group.touched
        del elements[start:]
        for at, row in rows:
            if ttl is not None:
                before, touched = touched, tick_of(at)
                if touched - before >= ttl:
                    state = self._initial
            state, out = scan(at, state, row)
            elements.append((at, row, state, out))
            mended.given.append((at, unit, out))

    def _is_initial(self, value: Any) -> bool:
        return self._scan.states.is_initial(value)


class FlatScanGrouping(ScanGrouping):
    """The same with any number of outputs: in an element they are one tuple."""

    def insert(self, batch: Batch) -> tuple[Batch | None, Batch | None]:
        """Insert as in any grouping; outputs are numbered from 1 in their child paths (R4)."""
        outputs, faults = super().insert(batch)
        return None if outputs is None else laid_out(outputs), faults


def laid_out(batch: Batch) -> Batch | None:
    """Tuples of outputs as outputs; None if there are none."""
    outputs = [(index, number, out) for index, outs in enumerate(batch.rows) for number, out in enumerate(outs, 1)]
    if not outputs:
        return None
    ats, units, flags = batch.ats, batch.units, batch.flags
    return Batch(
        [with_child(ats[index], number) for index, number, _ in outputs],
        [units[index] for index, _, _ in outputs],
        [out for _, _, out in outputs],
        None if flags is None else [flags[index] for index, _, _ in outputs],
    )


class Listing:
    """A flat scan's function with its outputs as a tuple, so that what a generator raises counts for its record.

    Args:
        function: The user's.
        gives: The class of the outputs.
    """

    def __init__(self, function: Function, gives: type) -> None:
        self._function = function
        self._gives = {gives}
        self.__qualname__ = shown_function(function)

    def __call__(self, state: Any, row: Any, *beside: Any) -> tuple[Any, Any]:
        """The state after a record and a tuple of its outputs; if one is not an output, that one in a list instead."""
        after, given = self._function(state, row, *beside)
        outs = tuple(given)
        if not set(map(type, outs)) <= self._gives:
            return after, next([out] for out in outs if type(out) not in self._gives)
        return after, outs


def calling(vertex: Vertex[Scan]) -> tuple[Function, type, Callable[[Any], str]]:
    """Return a scan's function per record, the class of its outputs, and the fault of other outputs."""
    step, name = vertex.step, vertex.gives.__qualname__
    if step.appends:
        return Listing(step.function, vertex.gives), tuple, lambda out: f"gave {said_type(out[0])}, expected {name}"
    return step.function, vertex.gives, lambda out: f"returned the output {said_type(out)}, expected {name}"


class Scanner:
    """A scan's function, with the required types of its results.

    Attributes:
        function: The user's function; for a flat scan, a `Listing` of it.
        gives: The class of the outputs; tuple for a flat scan.
        says: The error for an output of another class.
        states: The required type of the states.
        fixed: Whether the function's arguments are immutable.
    """

    def __init__(self, vertex: Vertex[Scan], broadcast: Vertex[Broadcast] | None = None) -> None:
        """Make one; the function also sees the states of `broadcast`."""
        self._vertex = vertex
        self._beside = None if broadcast is None else States(broadcast, broadcast.step.state)
        self.function, self.gives, self.says = calling(vertex)
        self.states = States(vertex, vertex.step.state)
        self._records = record_watch(vertex)
        self.fixed = self.states.fixed and self._records is None and self._beside is None

    def __call__(self, at: bytes, state: Any, row: Any, *beside: Any) -> tuple[Any, Any]:
        """The state after a record and its output; the state before it and a `Fault` if the function fails.

        Raises:
            UserError: the function changed a state in place.
        """
        function, states, seen, records = self.function, self.states, self._beside, self._records
        given, row_alone = [state], [row]
        looked = None if states.fixed else states.look(given)
        looked_beside = None if seen is None or seen.fixed else seen.look(beside)
        looked_record = None if records is None else records.look(row_alone)
        try:
            after, out = function(state, row, *beside)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            after, out = state, self.failed(row, error)
        else:
            if type(out) is not self.gives or looked is None or not states.saves(after):
                after, out = self.judged(state, row, after, out, looked)
        if looked is not None and not states.same(given, looked):
            raise states.changed(function, at, row)
        if seen is not None and looked_beside is not None and not seen.same(beside, looked_beside):
            raise seen.changed(function, at, row)
        if records is not None and not records.same(row_alone, looked_record):
            raise records.changed(row, at)
        return after, out

    def judged(self, state: Any, row: Any, after: Any, out: Any, looked: bytes | None) -> tuple[Any, Any]:
        """Return what a call gave, if it is valid; the state before it and a `Fault` otherwise."""
        if type(out) is not self.gives:
            failure: Failure | None = Failure(0, row, self.says(out))
        else:
            failure = self.states.fault(row, after, looked)
        return (after, out) if failure is None else (state, Fault(self._vertex, failure, None))

    def failed(self, row: Any, error: BaseException) -> Fault:
        """The fault of a call that raised, or whose result is not a pair."""
        return Fault(self._vertex, raised(0, row, error), None)
