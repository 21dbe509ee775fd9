"""The results of windows: the user's functions, and checks of what they return.

A state is never changed in place; `apply` has none, its windows keep their records.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from lowtide.core.operators.faults.failure import Failure, raised, shortened
from lowtide.core.operators.faults.watch import RecordWatch
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.plain.per_record import said_type
from lowtide.core.operators.state.states import States
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import is_fixed
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.site import Function
from lowtide.flow.steps.steps import Applied, Combined, Folded, Reduced, WindowBy
from lowtide.flow.steps.windows import Span, Window, is_sayable
from lowtide.flow.time.moments import moment

EMPTY = object()
"""The state of a window that has no record yet."""

_UNSAYABLE = "falls into a window that begins before the year 1 or ends after the year 9999, beyond a datetime"


class Refused(Exception):
    """A function raised, or gave what it must not."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Folding:
    """One window step's functions.

    Args:
        vertex: The step.

    Attributes:
        keeps: Whether windows keep their records, for `finish` to get them in order; else they keep a state.
        watches: Whether what the functions are given could be changed in place, so that each call needs a position.
    """

    def __init__(self, vertex: Vertex[WindowBy]) -> None:
        step = vertex.step
        self._add: Function
        result = step.result
        self._vertex = vertex
        self._gives = vertex.gives
        self.keeps = isinstance(result, Applied)
        self._merge: Function | None = None
        self._finish: Function | None = None
        self._initial: Any = EMPTY
        self._states: States | None = None
        if isinstance(result, Combined):
            made = result.made
            assert made is not None, "a plan's aggregates have been put together"
            self._add, self._merge, self._initial = made.add, made.merge, made.initial
            self._finish = lambda window, state: made.finish(state, window.key, window.start, window.end)
            self._states = States(vertex, made.state)
        else:
            assert result is not None, "a plan's windows have a result"
            self._add = result.function
        if isinstance(result, Reduced):
            self._merge = result.function
            self._states = States(vertex, vertex.takes)
        elif isinstance(result, Folded):
            self._merge, self._finish, self._initial = result.merge, result.finish, result.initial
            self._states = States(vertex, result.state)
        self._records = None if is_fixed(schema_of(vertex.takes).struct) else RecordWatch(vertex, self._add)
        self.watches = self._records is not None or (self._states is not None and not self._states.fixed)

    @staticmethod
    def check(span: Span, row: Any) -> None:
        """Check that a record's span fits a `Window`: both bounds in years 1 to 9999; raise Refused if not."""
        if not is_sayable(span):
            raise Refused(Failure(0, row, _UNSAYABLE))

    def add(self, state: Any, row: Any, position: Position | None) -> Any:
        """Return the state after one more record; the state before may be `EMPTY`.

        Args:
            state: The state before.
            row: The record.
            position: The record's position; needed if the step `watches`.

        Raises:
            Refused: the function did not return a state.
            UserError: it changed its state or record in place.
        """
        if state is EMPTY:
            if self._initial is EMPTY:
                return row
            state = self._initial
        return self._called(self._add, state, row, row, position)

    def merge(self, one: Any, other: Any, row: Any, position: Position | None) -> Any:
        """Return the state of two sessions that a record joins, the earlier first; errors as in `add`."""
        assert self._merge is not None, "a session that keeps a state has a merge"
        return self._called(self._merge, one, other, row, position)

    def finish(self, window: Window, state: Any, position: Position) -> list[Any]:
        """Return what a window gives, from its state or its records; errors as for `add`."""
        if self.keeps:
            outs = self._applied(window, state, position)
        elif self._finish is None:
            return [state]  # It has been looked at when it was made.
        else:
            outs = [self._finished(self._finish, window, state, position)]
        for out in outs:
            if type(out) is not self._gives:
                text = f"returned {said_type(out)}, expected {self._gives.__qualname__}"
                raise Refused(Failure(0, self.shown(window, state), text))
        return outs

    def shown(self, window: Window, state: Any) -> dict[str, Any]:
        """Return what failed when a window closed: not a record, but a key, a window and its content."""
        key = window.key[0] if len(window.key) == 1 else window.key
        kept = list(state) if self.keeps else state
        return {"key": key, "window_start": window.start, "window_end": window.end, "state": kept}

    def _called(self, function: Function, state: Any, other: Any, row: Any, position: Position | None) -> Any:
        states, records = self._states, self._records
        assert states is not None, "a window that keeps its records calls nothing for each"
        looked = None if states.fixed else states.look([state])
        looked_record = None if records is None else records.look([row])
        failure: Failure | None
        try:
            after = function(state, other)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            failure = raised(0, row, error)
        else:
            failure = None if states.fixed and states.saves(after) else states.fault(row, after, looked)
        if not states.same([state], looked):
            assert position is not None
            raise states.changed(function, position, row)
        if records is not None and not records.same([row], looked_record):
            assert position is not None
            raise records.changed(row, position)
        if failure is not None:
            raise Refused(failure)
        return after

    def _finished(self, function: Function, window: Window, state: Any, position: Position) -> Any:
        states = self._states
        assert states is not None
        looked = None if states.fixed else states.look([state])
        try:
            return function(window, state)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            raise Refused(raised(0, self.shown(window, state), error)) from None
        finally:
            if looked is not None and not states.same([state], looked):
                raise states.changed(function, position, shortened(state))

    def _applied(self, window: Window, rows: Sequence[Any], position: Position) -> list[Any]:
        records = self._records
        given = tuple(rows)
        looked = None if records is None else records.look(given)
        try:
            outs = list(self._add(window, given))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            raise Refused(raised(0, self.shown(window, rows), error)) from None
        finally:
            if records is not None and not records.same(given, looked):
                raise records.changed(shortened(given), position)
        return outs


_moment = lru_cache(4_096)(moment)
"""Bounds are shared by all keys, but those of sessions."""


def window_of(key: Any, several: bool, span: Span) -> Window:
    """The window of a key, which is a tuple if it has several columns."""
    return Window(key if several else (key,), _moment(span[0]), _moment(span[1]))
