"""`scan`: `function(state, record) -> (state, output)`, per key and in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure, raised
from lowtide.operators.fault import Fault
from lowtide.operators.group import Group
from lowtide.operators.grouping import NOTHING, Appended, Change, Grouping, Mended, apply_changes
from lowtide.operators.per_record import said_type
from lowtide.plan import Vertex
from lowtide.steps import Function, Scan


class ScanGrouping(Grouping):
    """Keeps the states since the prune time, so that a late record replays from the right one.

    An element is (order key, record, state behind it, output); an output may be a `Fault`, and then the state is the
    one before it.
    """

    def __init__(self, vertex: Vertex, columns: Sequence[str]) -> None:
        assert isinstance(vertex.step, Scan)
        super().__init__(vertex, columns)
        self._scan = Scanner(vertex)
        self._initial = vertex.step.initial

    def _append(self, batch: Batch, appended: Appended) -> None:
        groups, initial, scan, key_of = self._groups, self._initial, self._scan, self._key
        function, states, gives = scan.function, scan.states, scan.gives
        touched, outs, changes = appended.touched, appended.outs, appended.changes
        units, flags = batch.units, batch.flags
        # This loop is what a scan costs, so it says everything once and calls nothing but the user's function.
        for index, (at, row) in enumerate(zip(batch.ats, batch.rows, strict=True)):
            key = key_of(row)
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(units[index], initial)
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
            try:
                after, out = function(state, row)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
                after, out = state, scan.failed(state, row, error)
            else:
                if type(after) not in states or type(out) is not gives:
                    after, out = state, scan.misfit(row, after, out)
            elements.append((at, row, after, out))
            outs.append(out)

    def _mend(self, group: Group, changes: list[Change], mended: Mended) -> None:
        elements, scan, unit = group.elements, self._scan, group.unit
        start = bisect_left(elements, (changes[0].at,))
        old = elements[start:]
        rows = apply_changes(self._place, ((at, row) for at, row, _, _ in old), changes)
        mended.taken += [(at, unit, out) for at, _, _, out in old]
        state = elements[start - 1][2] if start else group.base
        del elements[start:]
        for at, row in rows:
            state, out = scan(state, row)
            elements.append((at, row, state, out))
            mended.given.append((at, unit, out))

    def _fold(self, group: Group, count: int) -> None:
        if count:
            group.base = group.elements[count - 1][2]
            del group.elements[:count]

    def _state(self, group: Group, count: int) -> Any:
        state = group.elements[count - 1][2] if count else group.base
        return NOTHING if state is self._initial else state

    def _restored(self, unit: int, state: Any) -> Group:
        return Group(unit, state)


class Scanner:
    """A scan's function, with what its results have to be.

    Attributes:
        function: The user's.
        states: The classes that a state may be of.
        gives: The class of the outputs.
    """

    def __init__(self, vertex: Vertex) -> None:
        assert isinstance(vertex.step, Scan)
        self._vertex = vertex
        self.function: Function = vertex.step.function
        self.states = classes_of(vertex.step.state)
        self.gives = vertex.gives

    def __call__(self, state: Any, row: Any, *beside: Any) -> tuple[Any, Any]:
        """The state behind a record and its output; the state before it and a `Fault` if the function fails."""
        try:
            after, out = self.function(state, row, *beside)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            return state, self.failed(state, row, error)
        if type(after) not in self.states or type(out) is not self.gives:
            return state, self.misfit(row, after, out)
        return after, out

    def failed(self, state: Any, row: Any, error: BaseException) -> Fault:
        """The fault of a call that raised, or whose result is no pair."""
        return Fault(self._vertex, raised(0, row, error), None)

    def misfit(self, row: Any, after: Any, out: Any) -> Fault:
        """The fault of a call whose result has a wrong type."""
        if type(out) is not self.gives:
            text = f"returned the output {said_type(out)}, expected {self.gives.__qualname__}"
        else:
            names = " or ".join(sorted(each.__qualname__ for each in self.states))
            text = f"returned the state {said_type(after)}, expected {names}"
        return Fault(self._vertex, Failure(0, row, text), None)


def classes_of(hint: Any) -> frozenset[type]:
    """The classes that values of a type may be of: of `dict[str, int] | None` dict and NoneType."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return frozenset().union(*map(classes_of, get_args(hint)))
    if origin is Literal:
        return frozenset(map(type, get_args(hint)))
    if hint is None:
        return frozenset((type(None),))
    if hint is float:
        return frozenset((float, int))
    return frozenset((origin or hint,))
