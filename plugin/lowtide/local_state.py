"""The steps with state in a run here and now: records come in order, so each has only to be taken as it comes.

A state that was changed in place, or could not be saved, is an error here in any case; a job, which may have to start
again from any earlier state, would go wrong without a word. Looking costs as much as the state is large, with every
record; the oracle of a long log leaves it out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from lowtide.errors import UserCodeFailed
from lowtide.kinds import Mismatch, encode_strictly
from lowtide.local_calls import Failed, called
from lowtide.local_items import Item
from lowtide.operators.failure import shortened
from lowtide.operators.keys import key_of
from lowtide.operators.per_record import said_type
from lowtide.operators.scanning import Scanner, classes_of
from lowtide.plan import Plan, Vertex
from lowtide.schema import kind_of
from lowtide.steps import Broadcast, Last, Scan

_MAKE_ANEW = "make a new state: dataclasses.replace(state, ...), {**state, key: value}, [*state, item]"
_AS_SAVED = "put floats where floats are declared, not ints, and datetimes in UTC"
_AS_DECLARED = "return a state of the types that its annotation declares"


class Windows:
    """The newest records of each key, for one `last`."""

    def __init__(self, plan: Plan, vertex: Vertex) -> None:
        assert isinstance(vertex.step, Last)
        self._step = vertex.step
        self._columns = plan.key_of(vertex)
        self._kept: dict[Hashable, tuple[Any, ...]] = {}

    def take(self, record: object) -> list[tuple[Any, ...]]:
        """The window that ends with this record, if it is long enough."""
        key, count = key_of(self._columns, record), self._step.count
        window = self._kept[key] = (*self._kept.get(key, ()), record)[-count:]
        return [window] if self._step.partial or len(window) == count else []


class Scanned:
    """The state of each key, for one `scan`, and that of the broadcast beside it."""

    def __init__(self, plan: Plan, vertex: Vertex, *, check_states: bool) -> None:
        assert isinstance(vertex.step, Scan)
        self._step = vertex.step
        self._scanner = Scanner(vertex)
        self._columns = plan.key_of(vertex)
        self._states = _States(vertex, checked=check_states)
        self.broadcast = plan.broadcast_of(vertex)
        self._beside = None if self.broadcast is None else _States(self.broadcast, checked=check_states)

    def take(self, item: Item) -> Any:
        """The output for a record; raises Failed, and then the state is as it was."""
        record, states, beside = item.record, self._states, self._beside
        key = key_of(self._columns, record)
        seen = () if beside is None else (beside[()],)
        try:
            # Taking the pair apart may fail as well: that is the record's failure too.
            state, output = called(lambda record: _pair(self._step.function(states[key], record, *seen)), record)
        finally:
            states.check_unchanged(key, item)
            if beside is not None:
                beside.check_unchanged((), item)
        scanner = self._scanner
        if type(state) not in scanner.states or type(output) is not scanner.gives:
            raise Failed(record, scanner.misfit(record, state, output).failure)
        states.put(key, state, item)
        return output

    def look(self, item: Item) -> None:
        """Fold a record of the broadcast into what the scan sees beside the next records; raises Failed."""
        assert self._beside is not None
        assert self.broadcast is not None
        step, beside = self.broadcast.step, self._beside
        assert isinstance(step, Broadcast)
        try:
            state = called(step.function, beside[()], item.record)
        finally:
            beside.check_unchanged((), item)
        if type(state) not in classes_of(step.state):
            raise Failed(item.record, f"returned the state {said_type(state)}")
        beside.put((), state, item)


def _pair(result: Any) -> tuple[Any, Any]:
    state, output = result
    return state, output


class _States:
    """The states of one step by key, and, if they are checked, how they looked when they were put there."""

    def __init__(self, vertex: Vertex, *, checked: bool) -> None:
        assert isinstance(vertex.step, Scan | Broadcast)
        self._vertex = vertex
        self._checked = checked
        self._kind = kind_of(vertex.step.state, "its state")
        self._initial = (vertex.step.initial, self._look(vertex.step.initial))
        self._kept: dict[Hashable, tuple[Any, str]] = {}

    def __getitem__(self, key: Hashable) -> Any:
        return self._kept.get(key, self._initial)[0]

    def check_unchanged(self, key: Hashable, item: Item) -> None:
        """Raise UserCodeFailed if a state is not what was put there; O(its size)."""
        if not self._checked:
            return
        state, looked = self._kept.get(key, self._initial)
        try:
            same = self._look(state) == looked
        except Mismatch:
            same = False
        if not same:
            raise self._error("changed its state in place", item, _MAKE_ANEW)

    def put(self, key: Hashable, state: object, item: Item) -> None:
        """Keep a state; raise UserCodeFailed if no column can hold it; O(its size)."""
        if not self._checked:
            self._kept[key] = (state, "")
            return
        try:
            column = encode_strictly(self._kind, [state], "")
        except Mismatch as mismatch:
            found = f"state{mismatch.path} is {mismatch.value!r}, expected {mismatch.expected}"
            raise self._error(f"returned a state that cannot be saved: {found}", item, _AS_DECLARED) from None
        # Compared as text, since 3 == 3.0 and an hour in Berlin equals one in UTC; written out they differ.
        (again,) = self._kind.decode(column)
        if repr(again) != repr(state):
            found = f"{shortened(state)} comes back from a snapshot as {shortened(again)}"
            raise self._error(f"returned a state that cannot be saved as it is: {found}", item, _AS_SAVED)
        self._kept[key] = (state, str(column.to_pylist()))

    def _look(self, state: object) -> str:
        return str(encode_strictly(self._kind, [state], "").to_pylist())

    def _error(self, what: str, item: Item, way_out: str) -> UserCodeFailed:
        where = f"{self._vertex.site}, record at {item.message.position}: {shortened(item.record)}"
        return UserCodeFailed(f'step "{self._vertex.name}": {what}', where=where, way_out=way_out)
